"""A corrected ASOF join takes back the result that stands, and none that it has taken back before."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.kernels.test_streamed_results import stream_all
from watersmeet.testing.harness import Harness, StepInput, load_script

SCRIPT = """
CREATE STREAM l (k INT, a INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '900' SECONDS)
    WITH (event_time_unit = 's');
CREATE STREAM r (k INT, b INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '900' SECONDS)
    WITH (event_time_unit = 's');
SELECT l.a, r.b FROM l ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k EMIT CHANGELOG;
"""


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_result_that_is_revised_again_and_again(in_pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_pieces:  # one version may revise any number of results
        stream_all(monkeypatch)
    harness = Harness(*load_script(SCRIPT), buckets=1)
    assert harness.step({"l": StepInput([(1, 1, 10)])}).changes == []
    assert harness.step({"r": StepInput([(1, 1, 1)])}).changes == [(1, (1, 1))]
    for newer in (2, 3, 4):
        changes = harness.step({"r": StepInput([(1, newer, newer)])}).changes
        assert sorted(changes) == [(-1, (1, newer - 1)), (1, (1, newer))]
        harness.restart()


NESTED = """
CREATE MUTABLE STREAM m (a INT, v INT) PRIMARY KEY (a);
SELECT x.a, x.b, m.v FROM (SELECT l.a, r.b FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k) AS x
JOIN m ON x.a = m.a EMIT CHANGELOG;
"""


def test_many_results_are_revised_in_parts_and_each_has_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join over them takes results back by their names."""
    stream_all(monkeypatch)
    harness = Harness(*load_script(SCRIPT.partition("SELECT")[0] + NESTED), buckets=1)
    of_k: dict[int, int | None] = dict.fromkeys(range(3))
    standing = Counter[tuple[Any, ...]]()
    left = [(number % 3, number, 100 + number) for number in range(60)]
    for step in range(5):
        of_k |= {k: 10 * step + k for k in range(step % 3, 3)} if step else {}
        rows = {"r": StepInput([(k, b, step) for k, b in of_k.items() if b is not None and b // 10 == step])}
        given = rows if step else {"l": StepInput(left), "m": StepInput([(a, -a) for a in range(60)])}
        for weight, row in harness.step(given).changes:
            standing[tuple(row)] += weight
        assert +standing == Counter((a, of_k[k], -a) for k, a, _ in left)
        assert not -standing
        harness.restart()
