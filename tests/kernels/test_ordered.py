"""ORDER BY event time: order within a step and across steps, every row once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

END = [Event(EventKind.END)]


def stream(name: str, delay: int) -> str:
    return (
        f"CREATE STREAM {name} (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECONDS) "
        "WITH (event_time_unit = 's');"
    )


def rows_of(outcome: StepOutcome) -> list[tuple[Any, ...]]:
    assert all(weight == 1 for weight, _ in outcome.changes)
    return [row for _, row in outcome.changes]


def test_a_row_comes_out_once_though_its_segment_lives_on() -> None:
    """Rows 5, 12 and 14 share a segment, which is there until 14 is final: 5 must not be emitted in each step."""
    harness = Harness(*load_script(stream("a", 10) + "SELECT v, ts FROM a ORDER BY ts EMIT FINAL"))
    steps = [[(1, 0, 5), (1, 1, 12), (1, 2, 14)], [(1, 3, 16)], [(1, 4, 17)], [(1, 5, 24)]]
    found = [rows_of(harness.step({"a": StepInput(rows)})) for rows in steps]
    assert found == [[], [(0, 5)], [], [(1, 12)]]
    assert rows_of(harness.step({}, END)) == [(2, 14), (3, 16), (4, 17), (5, 24)]


@given(data=st.data())
def test_one_stream_comes_out_sorted_by_time_and_ties(data: st.DataObject) -> None:
    jitters = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(-6, 3)), min_size=1, max_size=25))
    arrivals = [(0, v, i + jitter) for i, (v, jitter) in enumerate(jitters)]
    delay = max(max(row[2] for row in arrivals[: i + 1]) - row[2] for i, row in enumerate(arrivals))
    buckets = data.draw(st.integers(1, 3))
    sql = stream("a", delay) + "SELECT v, ts FROM a ORDER BY ts, v DESC EMIT FINAL"
    harness = Harness(*load_script(sql), buckets=buckets)
    found, frontier, rest = [], None, arrivals
    while rest:
        size = data.draw(st.integers(1, 6))
        step, rest = rest[:size], rest[size:]
        if data.draw(st.booleans()):
            harness.restart()
        found += rows_of(harness.step({"a": StepInput(step)}))
        times = [row[2] for row in arrivals[: len(arrivals) - len(rest)]]
        frontier = max(times) - delay
        assert len(found) == sum(time < frontier for time in times), "all that is final, and nothing else, is out"
    found += rows_of(harness.step({}, END))
    assert found == sorted(((v, ts) for _, v, ts in arrivals), key=lambda row: (row[1], -row[0]))


@given(data=st.data())
def test_a_join_comes_out_sorted_across_steps(data: st.DataObject) -> None:
    row = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(-6, 3))
    drawn = data.draw(st.lists(row, min_size=1, max_size=20))
    arrivals = [(name, (k, i, i + jitter)) for i, (name, k, jitter) in enumerate(drawn)]
    sql = (
        stream("a", 9) + stream("b", 9) + "SELECT a.v, a.ts, b.v AS bv FROM a "
        "LEFT JOIN b ON a.k = b.k WITHIN INTERVAL '3' SECONDS ORDER BY a.ts EMIT FINAL"
    )
    harness, unordered = (Harness(*load_script(text)) for text in (sql, sql.replace("ORDER BY a.ts", "")))
    found: list[tuple[Any, ...]] = []
    same: list[tuple[Any, ...]] = []
    while arrivals:
        size = data.draw(st.integers(1, 6))
        step, arrivals = arrivals[:size], arrivals[size:]
        inputs = {n: StepInput([each for name, each in step if name == n]) for n in {name for name, _ in step}}
        found += rows_of(harness.step(inputs))
        same += rows_of(unordered.step(inputs))
    found += rows_of(harness.step({}, END))
    same += rows_of(unordered.step({}, END))
    assert Counter(found) == Counter(same)
    assert [row[1] for row in found] == sorted(row[1] for row in found)


def test_late_rows_of_one_ordered_stream_are_counted() -> None:
    """A row that can no longer be emitted in order is late; it must not be counted as used and then lost."""
    harness = Harness(*load_script(stream("a", 0) + "SELECT v, ts FROM a ORDER BY ts EMIT FINAL"))
    harness.step({"a": StepInput([(1, 0, 5), (1, 1, 20)])})
    outcome = harness.step({"a": StepInput([(1, 2, 7), (1, 3, 30)])})
    assert rows_of(outcome) == [(1, 20)]
    assert (outcome.count("used"), outcome.count("late")) == (3, 1)
