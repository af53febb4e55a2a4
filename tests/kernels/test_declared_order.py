"""Queries over declared orders give what they give where the same column is an event time without a delay."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import TIME
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.kernels.ordered import is_sorted
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

END = [Event(EventKind.END)]
Row = tuple[int, int, int]  # k, v, sn
NAMES = "abc"
QUERIES = {
    "inner": "SELECT a.v, b.v FROM a JOIN b ON a.k = b.k AND b.sn BETWEEN a.sn - 3 AND a.sn + 2",
    "full": "SELECT a.v, b.v FROM a FULL JOIN b ON a.k = b.k AND b.sn > a.sn - 3 AND b.sn < a.sn + 4",
    "equal": "SELECT a.v, b.v FROM a LEFT JOIN b ON a.sn = b.sn",
    "anti": "SELECT a.v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND ABS(a.sn - b.sn) <= 2)",
    "expiring": "SELECT a.v, b.v FROM a LEFT JOIN b ON a.k = b.k AND b.sn >= a.sn AND b.sn <= a.sn + a.v",
    "several": "SELECT a.v, b.v, c.v FROM a JOIN b ON a.k = b.k AND b.sn >= a.sn AND b.sn <= a.sn + 4 "
    "JOIN c ON c.k = b.k AND c.sn BETWEEN a.sn - 2 AND a.sn + 2",
    "sliding": "SELECT a.v, b.v, b.sn FROM a JOIN b ON a.k = b.k AND b.sn BETWEEN a.sn - 3 AND a.sn + 2 "
    "ORDER BY b.sn, a.v DESC",
    "alone": "SELECT v, sn FROM a ORDER BY sn, v + k DESC",
}


def harness_of(query: str, *, declared: bool, buckets: int) -> Harness:
    how = ") WITH (ordered_by = 'sn');" if declared else ", WATERMARK FOR sn AS sn) WITH (event_time_unit = 'row');"
    script = "".join(f"CREATE STREAM {name} (k INT, v INT, sn BIGINT{how}\n" for name in NAMES)
    return Harness(*load_script(f"{script}{query} SETTINGS buckets = {buckets};"), buckets=buckets)


def figures(outcome: StepOutcome) -> dict[str, int]:
    return {name: value for name, value in outcome.counters.items() if name.split(".")[1] in ("late", "state_rows")}


@given(kind=st.sampled_from(sorted(QUERIES)), data=st.data())
def test_a_declared_order_is_a_time_without_delay(kind: str, data: st.DataObject) -> None:
    row = st.tuples(st.sampled_from([1, 1, 2]), st.integers(0, 4), st.integers(-4, 2))
    drawn = data.draw(st.lists(st.tuples(st.sampled_from(NAMES), row), min_size=1, max_size=24))
    arrivals = [(name, (k, v, i // 2 + jitter)) for i, (name, (k, v, jitter)) in enumerate(drawn)]
    buckets = data.draw(st.integers(1, 3))
    both = [harness_of(QUERIES[kind], declared=declared, buckets=buckets) for declared in (True, False)]
    assert all(part.input.dated_by is not None for part in both[0].plan.inputs)
    used = {part.input.alias for part in both[0].plan.inputs}
    while arrivals:
        size = data.draw(st.integers(1, 6))
        step, arrivals = arrivals[:size], arrivals[size:]
        fed = {name: StepInput([row for of, row in step if of == name]) for name in used}
        if data.draw(st.booleans()):
            both[0].restart()
        check_alike([each.step(fed) for each in both], in_order="ORDER BY" in QUERIES[kind])
    check_alike([each.step({}, END) for each in both], in_order="ORDER BY" in QUERIES[kind])


def check_alike(outcomes: list[StepOutcome], *, in_order: bool) -> None:
    found, expected = (each.changes if in_order else sorted(each.changes, key=repr) for each in outcomes)
    assert found == expected
    assert figures(outcomes[0]) == figures(outcomes[1])


@given(data=st.data())
def test_results_of_one_bucket_are_in_order_over_all_steps(data: st.DataObject) -> None:
    """Without an operator that sorts them."""
    harness = harness_of(QUERIES["sliding"], declared=True, buckets=1)
    assert len(harness.plan.operators) == 1
    found: list[tuple[Any, ...]] = []
    for step in range(data.draw(st.integers(1, 6))):
        row = st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(4 * step - 3, 4 * step + 3))
        rows = {name: StepInput(data.draw(st.lists(row, max_size=6))) for name in "ab"}
        found += [row for _, row in harness.step(rows).changes]
    found += [row for _, row in harness.step({}, END).changes]
    assert found == sorted(found, key=lambda row: (row[2], -row[0]))


# -- rows that arrive in order are not sorted ----------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2) | st.none(), st.sampled_from("ab"))), st.booleans())
def test_sorted_rows_are_told_from_others(rows: list[tuple[int, int | None, str]], descending: bool) -> None:
    table = pa.table(
        {
            TIME: pa.array([row[0] for row in rows], pa.int64()),
            "v": pa.array([row[1] for row in rows], pa.int32()),
            "s": pa.array([row[2] for row in rows], pa.string()),
        }
    )

    def key(row: tuple[int, int | None, str]) -> tuple[int, int, int]:
        return row[0], ord(row[2]) * (-1 if descending else 1), row[1] or 0

    is_in_order = [key(row) for row in rows] == sorted(map(key, rows))
    has_null = any(row[1] is None for row in rows)
    found = is_sorted(table, [(TIME, False), ("s", descending), ("v", False)])
    assert found <= (is_in_order or has_null)
    if not has_null:
        assert found == is_in_order


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, "a", 1), (1, "a", 2), (2, "a", 0)], True),
        ([(1, "b", 2), (1, "a", 1), (2, "b", 0)], True),
        ([(1, "a", 1), (1, "b", 1)], False),  # the second term is in descending order
        ([(2, "a", 1), (1, "a", 1)], False),
        ([(1, "a", 2), (1, "a", 1)], False),
        ([(1, "b", 2), (1, "a", 1), (2, "a", 0)], True),  # the last pair is equal in the second term, not in the first
        ([(1, "b", 9), (1, "a", 2), (1, "a", 1)], False),
    ],
)
def test_rows_are_compared_term_by_term(rows: list[tuple[int, str, int]], expected: bool) -> None:
    times, texts, values = zip(*rows, strict=True)
    table = pa.table({TIME: pa.array(times, pa.int64()), "s": pa.array(texts), "v": pa.array(values, pa.int32())})
    assert is_sorted(table, [(TIME, False), ("s", True), ("v", False)]) is expected


@pytest.mark.parametrize(
    ("values", "expected"), [([1.0, float("nan"), 2.0], False), ([None, 1.0], False), ([-0.0, 0.0], True)]
)
def test_where_order_is_hard_to_say_rows_are_sorted(values: list[float | None], expected: bool) -> None:
    table = pa.table({TIME: pa.array([1] * len(values), pa.int64()), "x": pa.array(values, pa.float64())})
    assert is_sorted(table, [(TIME, False), ("x", False)]) is expected


def test_one_row_without_a_time_is_not_taken_for_sorted() -> None:
    assert not is_sorted(pa.table({TIME: pa.array([None], pa.int64())}), [(TIME, False)])
    assert is_sorted(pa.table({TIME: pa.array([], pa.int64())}), [(TIME, False)])
