"""Masters: local ones try a task again."""

from __future__ import annotations

import pytest

from watersmeet.runtime.masters import cores_of_local_cluster, local_cores, with_retries


@pytest.mark.parametrize(
    ("master", "used", "cores"),
    [
        ("local", "local[1, 4]", 1),
        ("local[2]", "local[2, 4]", 2),
        ("local[*]", "local[*, 4]", None),
        ("local[3,1]", "local[3,1]", 3),
        ("local[*, 7]", "local[*, 7]", None),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]", None),
        ("spark://host:7077", "spark://host:7077", None),
        ("yarn", "yarn", None),
        ("", "", None),
    ],
)
def test_local_masters_get_retries_unless_they_name_their_own(master: str, used: str, cores: int | None) -> None:
    assert with_retries(master) == used
    assert local_cores(master) == local_cores(used) == cores


def test_the_cores_of_a_local_cluster() -> None:
    assert cores_of_local_cluster("local-cluster[2, 3,1024]") == 6
    for other in ("local-cluster", "local-cluster[2,3]", "local-cluster[*,1,1024]", "local[4]", "yarn"):
        assert cores_of_local_cluster(other) is None
