from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.cli.live import CurrentRows, Outcome, Shown, View, view_of, works_on_changes
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import Query, Select


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement.query


def held(rows: CurrentRows) -> list[tuple[int, tuple[object, ...]]]:
    return rows.shown(1000).sorted(None)


def test_changes_add_up_to_the_current_rows() -> None:
    rows = CurrentRows()
    assert rows.apply([(1, ("north", 1)), (1, ("south", 1))]) is Outcome.CHANGED
    assert rows.apply([(-1, ("north", 1)), (1, ("north", 2))]) is Outcome.CHANGED
    assert held(rows) == [(1, ("north", 2)), (1, ("south", 1))]


def test_a_row_inserted_twice_and_deleted_once_stays() -> None:
    rows = CurrentRows()
    rows.apply([(1, ("a",)), (1, ("a",)), (1, ("b",))])
    assert held(rows) == [(2, ("a",)), (1, ("b",))]
    rows.apply([(-1, ("a",)), (-1, ("b",))])
    assert held(rows) == [(1, ("a",))]


def test_the_order_within_a_batch_does_not_matter() -> None:
    rows = CurrentRows()
    assert rows.apply([(-1, ("a",)), (1, ("b",)), (1, ("a",))]) is Outcome.CHANGED
    assert rows.shown(10) == Shown(((1, ("b",)),), all=1, negative=0)


@pytest.mark.parametrize("changes", [[], [(1, ("a",)), (-1, ("a",))]])
def test_a_batch_without_effect_is_unchanged(changes: list[tuple[int, tuple[object, ...]]]) -> None:
    assert CurrentRows().apply(changes) is Outcome.UNCHANGED


def test_a_row_retracted_too_often_stays_visible_until_it_is_balanced() -> None:
    rows = CurrentRows()
    rows.apply([(-1, ("lost",))])
    rows.apply([(1, (f"row {number}",)) for number in range(10)])
    assert rows.shown(2) == Shown(((-1, ("lost",)), (1, ("row 9",))), all=11, negative=1)
    rows.apply([(1, ("lost",))])
    assert rows.shown(1) == Shown(((1, ("row 9",)),), all=10, negative=0)


def test_the_rows_changed_last_are_sorted_by_value() -> None:
    rows = CurrentRows()
    rows.apply([(1, (number,)) for number in range(5)])
    rows.apply([(1, (0,))])
    shown = rows.shown(3)
    assert shown.rows == ((2, (0,)), (1, (4,)), (1, (3,)))
    assert shown.sorted(None) == [(2, (0,)), (1, (3,)), (1, (4,))]
    assert shown.sorted(2) == [(2, (0,)), (1, (4,))]
    assert shown.all == 5


def test_too_many_distinct_rows_are_dropped() -> None:
    rows = CurrentRows(most=3)
    assert rows.apply([(5, (number,)) for number in range(3)]) is Outcome.CHANGED
    assert rows.apply([(1, (3,)), (-5, (0,))]) is Outcome.CHANGED  # at the end of the batch there are three again
    assert rows.apply([(1, (4,)), (-1, (99,))]) is Outcome.FULL
    assert rows.shown(10) == Shown()


def test_rows_can_have_any_value_of_spark() -> None:
    """NaN is one value, and values that cannot be hashed become text."""
    row = (nan, -0.0, None, [1, None], {"a": 1}, [("k", 2)], b"x", Decimal("1.10"), datetime(2026, 1, 1))  # noqa: DTZ001
    same = (float("nan"), 0.0, None, [1, None], {"a": 1}, [("k", 2)], b"x", Decimal("1.1"), datetime(2026, 1, 1))  # noqa: DTZ001
    rows = CurrentRows()
    rows.apply([(1, row)])
    rows.apply([(-1, same)])
    assert held(rows) == []


def test_nan_and_null_sort_after_other_values() -> None:
    rows = CurrentRows()
    rows.apply([(1, (value,)) for value in (None, nan, 2.5, -1.0)])
    assert [str(cells[0]) for _, cells in held(rows)] == ["-1.0", "2.5", "nan", "None"]


@given(st.lists(st.lists(st.tuples(st.sampled_from([-1, 1]), st.tuples(st.integers(0, 3))), max_size=6), max_size=6))
def test_the_rows_are_the_sum_of_all_changes(batches: list[list[tuple[int, tuple[int]]]]) -> None:
    rows = CurrentRows()
    sums = dict.fromkeys(range(4), 0)
    for batch in batches:
        for weight, (number,) in batch:
            sums[number] += weight
        rows.apply(batch)
    assert held(rows) == [(weight, (number,)) for number, weight in sums.items() if weight]
    assert rows.shown(0) == Shown(all=len(held(rows)), negative=sum(weight < 0 for weight in sums.values()))


JOIN = "FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' MINUTES"


@pytest.mark.parametrize(
    ("text", "view"),
    [
        (f"SELECT o.id {JOIN} EMIT CHANGELOG", View.CHANGES),
        (f"SELECT *, _tp_delta {JOIN} EMIT CHANGELOG", View.CHANGES),
        ("SELECT count(), max(i) FROM o", View.TABLE),
        ("SELECT k, count(*) + 1 AS n FROM o GROUP BY k", View.TABLE),
        ("SELECT k FROM o GROUP BY k", View.TABLE),
        ("SELECT * FROM (SELECT k, sum(i) AS s FROM o GROUP BY k) WHERE s > 3", View.TABLE),
        ("SELECT k, count(*), _tp_delta FROM o GROUP BY k", View.CHANGES),
        ("SELECT k, count(*), O._TP_DELTA FROM o GROUP BY k", View.CHANGES),
    ],
)
def test_the_view_of_a_query(text: str, view: View) -> None:
    assert view_of(query(text), View.AUTO) is view
    assert view_of(query(text), View.CHANGES) is View.CHANGES
    assert view_of(query(text), View.TABLE) is View.TABLE


@pytest.mark.parametrize(
    ("text", "works"),
    [
        (f"SELECT o.id {JOIN}", False),
        (f"SELECT *, _tp_delta {JOIN}", False),
        (f"SELECT o._tp_delta AS _tp_delta {JOIN}", False),
        (f"SELECT o.id, _tp_delta AS d {JOIN}", True),
        (f"SELECT o.id * _tp_delta AS n {JOIN}", True),
        (f"SELECT o.id {JOIN} WHERE _tp_delta < 0", True),
    ],
)
def test_a_query_that_computes_with_the_delta(text: str, works: bool) -> None:
    assert works_on_changes(query(text)) is works
