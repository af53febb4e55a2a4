"""Further terms of a declared order: which rows are late, against a model that compares whole rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import TIE, TIME
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.ties import is_behind, last_tie, with_ties
from watersmeet.testing.harness import Harness, StepInput, load_script

Row = tuple[int, int | None, str | None]  # sn, x, s
SCRIPT = """
CREATE STREAM a (sn INT, x INT, s STRING) WITH (ordered_by = 'sn, x DESC, s');
CREATE STREAM b (sn INT, x INT, s STRING) WITH (ordered_by = 'sn, x DESC, s');
SELECT a.sn, a.x, a.s, b.sn AS bsn, b.x AS bx, b.s AS bs FROM a JOIN b ON b.sn BETWEEN a.sn - 1 AND a.sn + 1
SETTINGS buckets = 2;
"""
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([None, 1, 2]), st.sampled_from([None, "", "y", "yz", "ä"])), max_size=4
)


def place(row: Row) -> tuple[int, tuple[bool, int], tuple[bool, bytes]]:
    """Where a row stands: x descends, with NULL last; s rises, with NULL first."""
    sn, x, s = row
    return sn, (x is None, -(x or 0)), (s is not None, (s or "").encode())


class Model:
    """The newest row of each stream is a place; a row is late behind the frontier, or at it and behind that place."""

    def __init__(self) -> None:
        self.newest: dict[str, Row] = {}
        self.taken: dict[str, list[Row]] = {"a": [], "b": []}
        self.late: Counter[str] = Counter()

    def step(self, rows: dict[str, list[Row]]) -> None:
        frontier = min((row[0] for row in self.newest.values()), default=-1) if len(self.newest) == 2 else -1
        for name, new in rows.items():
            last = self.newest.get(name)
            for row in new:
                is_behind = last is not None and row[0] == last[0] == frontier and place(row) < place(last)
                if row[0] < frontier or is_behind:
                    self.late[name] += 1
                else:
                    self.taken[name].append(row)
        for name, new in rows.items():
            known = [self.newest[name]] if name in self.newest else []
            if new or known:
                self.newest[name] = max([*known, *new], key=place)

    @property
    def results(self) -> Counter[tuple[object, ...]]:
        return Counter((*a, *b) for a in self.taken["a"] for b in self.taken["b"] if abs(a[0] - b[0]) <= 1)


@given(steps=st.lists(st.tuples(ROWS, ROWS, st.booleans()), max_size=6))
def test_rows_behind_the_last_one_are_late(steps: list[tuple[list[Row], list[Row], bool]]) -> None:
    harness, model = Harness(*load_script(SCRIPT), buckets=2), Model()
    found: Counter[tuple[object, ...]] = Counter()
    late = {"a": 0, "b": 0}
    for number, (a, b, restarts) in enumerate(steps):
        shift = number // 2  # the numbers rise slowly
        rows = {name: [(sn + shift, x, s) for sn, x, s in new] for name, new in (("a", a), ("b", b))}
        if restarts:
            harness.restart()
        outcome = harness.step({name: StepInput(new) for name, new in rows.items()})
        found.update(row for _, row in outcome.changes)
        late = {name: outcome.counters.get(f"join_1.late.{name}", 0) for name in "ab"}
        model.step(rows)
        assert late == {name: model.late[name] for name in "ab"}
    found.update(row for _, row in harness.step({}, [Event(EventKind.END)]).changes)
    assert found == model.results


@pytest.mark.parametrize("later", ["sn, s", "sn, x DESC"])
def test_after_a_change_of_the_terms_rows_are_not_compared_with_those_before(later: str) -> None:
    streams = "CREATE STREAM a (sn INT, x INT, s STRING) WITH (ordered_by = '{0}'); SELECT sn, x FROM a ORDER BY sn;"
    harness = Harness(*load_script(streams.format("sn, x")))
    harness.step({"a": StepInput([(1, 3, "a")])})
    harness.replace(*load_script(streams.format(later)))
    outcome = harness.step({"a": StepInput([(1, 2, "b")])})
    assert outcome.counters["order.late.a"] == 0
    outcome = harness.step({"a": StepInput([(1, 3, "a")])})
    assert outcome.counters["order.late.a"] == 1


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "INT": (pa.int32(), [None, -5, 0, 7]),
    "DOUBLE": (pa.float64(), [None, float("-inf"), -0.5, 1e300, float("nan")]),
    "STRING": (pa.string(), [None, "", "A", "a", "aa", "ß", "\U0001f600"]),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), [None, -1, 0, 1]),
    "BOOLEAN": (pa.bool_(), [None, False, True]),
    "ARRAY<INT>": (pa.list_(pa.int32()), [None, [], [1], [1, 2], [2]]),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("descending", [False, True])
def test_ties_compare_as_spark_orders_values(kind: str, descending: bool) -> None:
    type_, values = VALUES[kind]
    rows = pa.table({TIME: pa.array([1] * len(values), pa.int64()), "x": pa.array(values, type_)})
    ties = with_ties(rows, [("x", descending)])[TIE].to_pylist()
    assert ties == sorted(ties, reverse=descending)
    assert len(set(ties)) == len(values)


def test_only_rows_of_that_time_are_behind() -> None:
    rows = with_ties(pa.table({TIME: pa.array([1, 2, 2, 3, None], pa.int64()), "x": [0, 1, 5, 0, 0]}), [("x", False)])
    last = last_tie(rows, 2)
    assert is_behind(rows, 2, last).to_pylist() == [False, True, False, False, False]
    assert last_tie(rows.drop_columns([TIE]), 2) == last_tie(rows, 4) == b""
