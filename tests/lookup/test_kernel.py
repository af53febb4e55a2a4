"""The lookup join's kernel: matches, padding, residual, NULL keys, counters, no state."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.lookup.tables import FakeTable, Now, rows
from watersmeet.columns import TIME
from watersmeet.errors import ConnectorError
from watersmeet.kernels.api import NEVER, StepFrontiers, StepResult
from watersmeet.kernels.lookup import COUNTERS, LookupJoin
from watersmeet.kernels.match import Key, SideColumns
from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.lookup.source import RowsSource
from watersmeet.state.working_set import WorkingSet

LEFT = pa.schema([(TIME, pa.int64()), ("o:k", pa.int64()), ("o:v", pa.int64())])
TABLE = FakeTable((1, "one"), (2, "two"), (2, "zwei"))


@pytest.fixture
def state() -> Iterator[WorkingSet]:
    with duckdb.connect() as connection:
        yield WorkingSet(connection)


def lookup(table: Any = TABLE, **more: Any) -> LookupJoin:
    return LookupJoin(
        left=SideColumns(("o:$t", "o:v"), ("o:k",), "o:$t"),
        right=SideColumns(("c:name",)),
        keys=(Key("o:k", "c:id"),),
        names=("c:id", "c:name"),
        source=table,
        clock=Now(),
        **more,
    )


def step(kernel: LookupJoin, state: WorkingSet, *left: tuple[int | None, int | None, int]) -> StepResult:
    table = pa.Table.from_pylist([dict(zip(LEFT.names, row, strict=True)) for row in left], LEFT)
    return kernel.step(state, {0: table}, StepFrontiers(NEVER, NEVER, (NEVER,), (NEVER,)), 0)


def changes(result: StepResult) -> list[tuple[Any, ...]]:
    assert isinstance(result.changes, pa.Table)
    assert result.changes.column_names == ["o:$t", "o:v", "c:name"]
    return rows(result.changes)


def test_inner_gives_each_row_with_all_rows_of_its_key(state: WorkingSet) -> None:
    result = step(lookup(), state, (10, 1, 100), (11, 2, 101), (12, 3, 102), (13, 2, 103))
    assert changes(result) == [
        *[(10, 100, "one"), (11, 101, "two"), (11, 101, "zwei")],
        *[(13, 103, "two"), (13, 103, "zwei")],
    ]
    assert (result.store, result.forget) == ({}, {})


def test_left_pads_and_null_keys_are_not_asked_for(state: WorkingSet) -> None:
    table = FakeTable((1, "one"))
    result = step(lookup(table, outer=True), state, (10, 1, 100), (11, 3, 101), (12, None, 102), (None, 1, 103))
    assert changes(result) == [(10, 100, "one"), (11, 101, None), (12, 102, None), (None, 103, "one")]
    assert table.asked == [[1, 3]]


def test_the_residual_is_part_of_the_match(state: WorkingSet) -> None:
    kernel = lookup(outer=True, residual="""(r."c:name" = 'zwei' AND l."o:v" > 100)""")
    assert changes(step(kernel, state, (10, 2, 101), (11, 2, 100))) == [(10, 101, "zwei"), (11, 100, None)]


def test_what_was_found_is_kept_from_step_to_step_and_its_age_counts(state: WorkingSet) -> None:
    table = FakeTable((1, "one"))
    kernel = lookup(table, cache_ttl=60.0)
    first = step(kernel, state, (10, 1, 100), (10, 1, 101))
    table.content = [(1, "uno")]
    second = step(kernel, state, (10, 1, 102))
    kernel.clock.time = 60  # type: ignore[attr-defined]
    third = step(kernel, state, (10, 1, 103))
    assert [changes(each)[0][2] for each in (first, second, third)] == ["one", "one", "uno"]
    assert [each.counters["lookup_hits"] for each in (first, second, third)] == [0, 1, 0]
    assert tuple(first.counters) == COUNTERS


def test_without_a_cache_each_step_asks(state: WorkingSet) -> None:
    table = FakeTable((1, "one"))
    kernel = lookup(table, cache_rows=0)
    for _ in range(2):
        step(kernel, state, (10, 1, 100))
    assert table.asked == [[1], [1]]


def test_buckets_share_a_cache_and_runs_do_not(state: WorkingSet) -> None:
    table = FakeTable((1, "one"))
    kernel = lookup(table)
    step(kernel, state, (10, 1, 100))
    with duckdb.connect() as connection:
        step(kernel, WorkingSet(connection), (10, 1, 100))
    assert table.asked == [[1]]
    step(lookup(table), state, (10, 1, 100))
    assert table.asked == [[1], [1]]


def test_rows_that_could_not_be_looked_up_are_counted(state: WorkingSet) -> None:
    table = FakeTable((1, "one"))
    table.failures = 1
    kernel = lookup(table, outer=True, retry=RetryPolicy(0, OnError.NULL))
    result = step(kernel, state, (10, 1, 100), (10, 1, 101), (10, None, 102))
    assert changes(result) == [(10, 100, None), (10, 101, None), (10, 102, None)]
    assert result.counters["lookup_failed"] == 2
    assert changes(step(kernel, state, (10, 1, 103))) == [(10, 103, "one")]


def test_a_step_after_a_failed_one_is_right(state: WorkingSet) -> None:
    table = FakeTable((1, "one"))
    table.failures = 1
    kernel = lookup(table, retry=RetryPolicy(0))
    with pytest.raises(ConnectorError):
        step(kernel, state, (10, 1, 100))
    assert changes(step(kernel, state, (10, 1, 100))) == [(10, 100, "one")]


def test_two_columns_compared_with_one_key(state: WorkingSet) -> None:
    kernel = replace(lookup(), keys=(Key("o:k", "c:id"), Key("o:v", "c:id")))
    assert changes(step(kernel, state, (10, 1, 1), (11, 1, 2))) == [(10, 1, "one")]


def test_a_step_without_rows(state: WorkingSet) -> None:
    assert changes(step(lookup(), state)) == []


def test_how_the_table_is_reached_is_no_part_of_the_plan() -> None:
    other = RowsSource("other", pa.table({"id": [1], "name": ["x"]}))
    assert repr(lookup()) == repr(lookup(other, cache_rows=1, retry=RetryPolicy(0)))


def test_it_travels_to_the_workers() -> None:
    kernel = lookup(RowsSource("rows", pa.table({"id": [1], "name": ["x"]})))
    assert pickle.loads(pickle.dumps(kernel)).cache == kernel.cache
