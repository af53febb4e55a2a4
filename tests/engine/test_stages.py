"""Stages: a frontier that passes more stored rows than a step may have advances bit by bit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine.stages import stages
from watersmeet.kernels.api import FOREVER, NEVER, Kernel, StateView, StepFrontiers, StepResult
from watersmeet.state.segments import Segment
from watersmeet.testing.cells import Row
from watersmeet.testing.harness import Harness, StepInput, load_script

times = st.integers(-100, 100)


def segment(low: int, high: int, nbytes: int, relation: str = "rows") -> Segment:
    return Segment(f"{low}-{high}", relation, 1, nbytes, low, high, 1)


@given(
    st.sampled_from([NEVER, -50, 0]),
    st.sampled_from([1, 60, FOREVER]),
    st.lists(st.tuples(times, st.integers(0, 60), st.integers(1, 1_000)), max_size=6),
    st.integers(1, 500),
)
def test_stages_lead_from_one_frontier_to_the_other(
    before: int, after: int, rows: list[tuple[int, int, int]], most: int
) -> None:
    segments = [segment(low, low + width, nbytes) for low, width, nbytes in rows]
    frontiers = StepFrontiers(before, after, (after, 7), (before, 3))
    found = list(stages(frontiers, segments, ("rows",), most))
    assert found[0].before == before
    assert found[-1] == StepFrontiers(found[-1].before, after, (after, 7), (before, 3))
    assert all(one.after == other.before for one, other in pairwise(found))
    assert all(each.before < each.after for each in found)
    assert all(each.inputs == each.inputs_before == (before, 3) for each in found[:-1])
    assert len(found) <= max(-(-sum(nbytes for _, _, nbytes in rows) // most), 1)


def test_rows_of_a_stage_have_about_the_bytes_of_a_step() -> None:
    segments = [
        segment(0, 99, 1_000),
        segment(100, 199, 3_000),
        segment(300, 399, 9_000),
        segment(0, 9, 5_000, "other"),
    ]
    found = list(stages(StepFrontiers(0, 250, (), ()), segments, ("rows",), 1_000))
    assert [each.after for each in found] == [100, 134, 168, 250]


def test_cutting_takes_no_longer_for_many_segments() -> None:
    """It is one pass over them: a thousand segments, each of a step's bytes, before the end of all time."""
    segments = [segment(number * 10**6, (number + 1) * 10**6 - 1, 100) for number in range(1_000)]
    found = list(stages(StepFrontiers(NEVER, FOREVER, (), ()), segments, ("rows",), 100))
    assert [each.after for each in found] == [*(number * 10**6 for number in range(1, 1_000)), FOREVER]


def test_a_frontier_that_stands_or_passes_nothing_has_one_stage() -> None:
    stands = StepFrontiers(5, 5, (5,), (5,))
    assert list(stages(stands, [segment(0, 9, 1_000)], ("rows",), 1)) == [stands]
    moves = StepFrontiers(5, 9, (9,), (5,))
    assert list(stages(moves, [segment(20, 30, 1_000)], ("rows",), 1)) == [moves]
    assert list(stages(moves, [segment(0, 9, 1_000)], (), 1)) == [moves]
    assert list(stages(moves, [segment(0, 9, 1_000)], ("rows",), None)) == [moves]


SCRIPT = """
CREATE STREAM l (k INT, a INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '900' SECONDS)
    WITH (event_time_unit = 's');
CREATE STREAM r (k INT, b INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '900' SECONDS)
    WITH (event_time_unit = 's');
"""
QUERIES = {
    "ordered": "SELECT a, k FROM l ORDER BY ts",
    "sliding": "SELECT l.a, r.b FROM l LEFT JOIN r ON l.k = r.k AND l.ts BETWEEN r.ts AND r.ts + 50 "
    "EMIT FINAL SETTINGS join_algorithm = 'sliding'",
    "in time": "SELECT a, sum(a) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING) AS s, "
    "count(*) OVER (PARTITION BY k ORDER BY ts) AS n FROM l EMIT FINAL",
    "windows": "SELECT k, window_end, count(*) AS n, max(a) AS a FROM TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '20' "
    "SECONDS) GROUP BY k, window_start, window_end EMIT FINAL",
    "as of": "SELECT l.a, r.b FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k EMIT FINAL",
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_what_was_held_back_comes_in_stages(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows wait until the last ones come, which are much later: then they are due, more than a step may have."""
    script = load_script(SCRIPT + query)
    kernel = type(Harness(*script).operators[-1].kernel)
    step, stops = kernel.step, set()

    def noted(self: Kernel, state: StateView, inputs: Any, frontiers: StepFrontiers, first_rid: int) -> StepResult:
        stops.add(frontiers.after)
        result: StepResult = step(self, state, inputs, frontiers, first_rid)
        return result

    monkeypatch.setattr(kernel, "step", noted)
    batches = [{name: StepInput([(n % 3, n, 10 * n + 60 * m) for n in range(30)]) for name in "lr"} for m in range(4)]
    batches.append({name: StepInput([(8, 8, 5_000)]) for name in "lr"})

    def results(most: int | None) -> list[list[tuple[int, Row]]]:
        harness = Harness(*script, buckets=1, max_step_bytes=most)
        known = harness.inputs_of
        return [harness.step({name: rows for name, rows in batch.items() if known(name)}).changes for batch in batches]

    at_once = results(None)
    assert [bool(each) for each in at_once] == [False] * 4 + [True]
    few = len(stops)
    stops.clear()
    in_stages = results(1_500)
    if "ORDER BY ts" in query and "OVER" not in query:
        assert in_stages == at_once
    assert [sorted(each, key=repr) for each in in_stages] == [sorted(each, key=repr) for each in at_once]
    assert len(stops) >= few + 3
