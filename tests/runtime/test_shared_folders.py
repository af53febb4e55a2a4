"""Whether workers see a folder; workers that do not are in tests/cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError
from watersmeet.runtime import shared_folders
from watersmeet.runtime.shared_folders import require_shared

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def as_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folders, "workers_are_here", lambda spark: False)
    monkeypatch.setattr(shared_folders, "_shared", set())


def test_a_folder_that_all_see_is_made_and_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    require_shared(spark, str(tmp_path / "new"), "the checkpoint")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "new").rmdir()
    require_shared(spark, f"file:{tmp_path}/new", "the checkpoint")  # known by now
    assert not (tmp_path / "new").exists()


def test_a_folder_is_looked_at_again_when_there_are_other_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def ask(_: SparkSession, marker: Path) -> list[tuple[str, bool]]:
        asked.append(marker)
        return []

    monkeypatch.setattr(shared_folders, "_ask", ask)
    for executors in ("a", "a", "ab"):
        monkeypatch.setattr(shared_folders, "_executors", lambda _, those=executors: frozenset(those))
        require_shared(spark, str(tmp_path), "the checkpoint")
    assert len(asked) == 2


def test_a_folder_that_cannot_be_made(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"the checkpoint .*/file/below cannot be written: Not a directory"):
        require_shared(spark, str(tmp_path / "file" / "below"), "the checkpoint")
