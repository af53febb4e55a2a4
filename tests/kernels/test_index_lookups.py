"""Operators that look stored rows up by key emit the same results as with a scan."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import test_aggregate, test_changing_properties, test_multi_way
from tests.kernels.changing_queries import query, streams
from tests.kernels.models import KINDS, STREAMS, cut, disorder, rows_of, shapes
from tests.kernels.test_interval_properties import check, per_kind
from tests.support.index_lookups import Search, always_looked_up
from tests.support.reference import Kind
from watersmeet.state import keyed_segments, working_set
from watersmeet.state.working_set import WorkingSet
from watersmeet.testing.cells import Value
from watersmeet.testing.harness import Harness, StepInput, load_script

EXAMPLES = max(settings.default.max_examples // 4, 1) if settings.default else 12


@pytest.fixture(scope="module", autouse=True)
def searches() -> Iterator[list[Search]]:
    """All searches so far."""
    with always_looked_up() as searches:
        yield searches


@pytest.mark.sample(3)
@pytest.mark.parametrize("places", [1 << 32, 20])
@pytest.mark.parametrize("kind", KINDS)
@per_kind
@given(data=st.data())
def test_windowed_joins(kind: Kind, places: int, data: st.DataObject) -> None:
    shape = data.draw(shapes(kind))
    rows = data.draw(st.composite(rows_of)())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_segments, "MAX_PLACES", places)
        check(shape, {name: disorder(rows, name) for name in STREAMS}, data.draw(st.composite(cut)(rows)))


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_joins_of_streams_that_change(seed: int) -> None:
    rng = random.Random(seed)
    test_changing_properties.check(rng, lambda: query(rng, list(streams(rng).values())))


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_aggregates(data: st.DataObject) -> None:
    test_aggregate.check(data, grouped=True, settles_at=data.draw(st.sampled_from([0, 3, 10_000])))


CHANGING = """
CREATE MUTABLE STREAM l (id INT, k STRING, v INT, ts BIGINT) PRIMARY KEY (id) WITH (event_time_unit = 's');
CREATE MUTABLE STREAM r (id INT, k STRING, v INT, ts BIGINT) PRIMARY KEY (id) WITH (event_time_unit = 's');
"""


@pytest.mark.parametrize(
    ("query", "by"),
    [
        # rows by primary key, what a change takes back by id, partners by key, logs by the numbers of what was found
        ("SELECT l.v, r.v AS w FROM l LEFT JOIN r ON l.k = r.k", {"l:id", "r:id", "$id", "l:k", "r:k", "$rid"}),
        ("SELECT l.v, r.v AS w FROM l JOIN r ON l.id = r.id", {"l:id", "r:id", "$rid"}),
        ("SELECT k, count(*) AS n, min(v) AS v FROM l GROUP BY k", {"l:id", "$rid", "$g0"}),
    ],
)
def test_what_is_stored_of_streams_that_change_is_looked_up(searches: list[Search], query: str, by: set[str]) -> None:
    harness = Harness(*load_script(f"{CHANGING} {query} EMIT CHANGELOG;"), buckets=1)
    searches.clear()
    for number in range(3):
        changes = StepInput([(1, "a", number, number), (2, "b", 2 * number, number)])
        harness.step({name: changes for name in "lr" if harness.inputs_of(name)})
    assert {name for columns, tables in searches if tables for name in columns} == by


@pytest.mark.parametrize(
    ("on", "met"),
    [
        ("l.id = r.id AND l.id = r.id", [1, 2, 2, 2]),
        ("l.id = r.id AND l.v = r.id", [1, 2, None, 2]),
        ("l.id = r.id AND l.id = r.v", [1, None, None, None]),
    ],
)
def test_a_column_may_meet_two_of_the_other_side(on: str, met: list[int | None]) -> None:
    query = f"SELECT l.id, r.v FROM l LEFT JOIN r ON {on} EMIT CHANGELOG;"
    harness = Harness(*load_script(f"{CHANGING} {query}"), buckets=1)
    held: Counter[tuple[Value, ...]] = Counter()
    for number, (names, v) in enumerate([("lr", 1), ("r", 2), ("l", 2), ("l", 1)]):
        outcome = harness.step({name: StepInput([(1, "a", v, number)]) for name in names})
        for weight, row in outcome.changes:
            held[row] += weight
        assert +held == Counter([(1, met[number])])


def test_what_is_scanned_stays_in_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it counts in DuckDB's share; what is registered does not."""
    registered = []
    register = WorkingSet.register

    def counting(held: WorkingSet, rows: pa.Table) -> str:
        registered.append(rows)
        return register(held, rows)

    harness = Harness(*load_script(f"{CHANGING} SELECT l.k, r.v FROM l JOIN r ON l.v < r.v EMIT CHANGELOG;"), buckets=1)
    harness.step({"l": StepInput([(id, "a", 1, 1) for id in range(100)])})
    monkeypatch.setattr(working_set, "MIN_PROBED_ROWS", 1_000)
    monkeypatch.setattr(WorkingSet, "register", counting)
    assert len(harness.step({"r": StepInput([(1, "a", 2, 2)])}).changes) == 100
    assert not [rows for rows in registered if rows.num_rows > 1 and rows.num_columns > 1]


def test_a_step_that_fails_holds_no_rows(searches: list[Search], monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(*load_script(KEYS.format(left="INT", right="INT")), buckets=1)
    harness.step({"r": StepInput([(3, 1)])})
    with monkeypatch.context() as patch:
        patch.setattr("watersmeet.state.working_set.WorkingSet.query", failing_join)
        with pytest.raises(MemoryError):
            harness.step({"l": StepInput([(3, 2)])})
    registered = [each._registered for each in harness._working_sets._sets.values()]
    assert searches[-1][1] == 1
    assert {slot.rows for each in registered for slot in each._slots.values()} == {None}
    assert harness.step({"l": StepInput([(3, 2)])}).changes == [(1, (3, 3))]


def failing_join(working_set: WorkingSet, sql: str, *, joins_as_written: bool = False) -> pa.Table:
    del joins_as_written
    if " JOIN " in sql:
        raise MemoryError
    return working_set.connection.sql(sql).to_arrow_table()


def test_null_keys_are_not_looked_up_where_they_meet_nothing(searches: list[Search]) -> None:
    harness = Harness(*load_script(KEYS.format(left="INT", right="INT")), buckets=1)
    harness.step({"r": StepInput([(None, 1), (3, 1)])})
    searches.clear()
    assert harness.step({"l": StepInput([(None, 2)])}).changes == []
    assert [tables for _, tables in searches] == [0]
    assert harness.step({"l": StepInput([(None, 2), (3, 2)])}).changes == [(1, (3, 3))]


KEYS = """
CREATE STREAM l (k {left}, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (k {right}, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT l.k AS k, r.k AS other FROM l JOIN r ON l.k = r.k WITHIN INTERVAL '1' HOUR;
"""
CHANGING_KEYS = """
CREATE MUTABLE STREAM l (k {left}, ts BIGINT) PRIMARY KEY (ts) WITH (event_time_unit = 's');
CREATE MUTABLE STREAM r (k {right}, ts BIGINT) PRIMARY KEY (ts) WITH (event_time_unit = 's');
SELECT l.k AS k, r.k AS other FROM l JOIN r ON l.k = r.k EMIT CHANGELOG;
"""


@pytest.mark.parametrize("script", [KEYS, CHANGING_KEYS])
@pytest.mark.parametrize(
    ("left", "right"),
    [("INT", "BIGINT"), ("INT", "DOUBLE"), ("INT", "DECIMAL(9,2)"), ("DECIMAL(9,1)", "DECIMAL(9,2)"), ("DATE", "DATE")],
)
def test_keys_of_two_types_meet(script: str, left: str, right: str) -> None:
    harness = Harness(*load_script(script.format(left=left, right=right)), buckets=1)
    values: dict[str, Value] = {
        "DATE": dt.date(2026, 1, 2),
        "DOUBLE": 3.0,
        "DECIMAL(9,1)": Decimal("3.0"),
        "DECIMAL(9,2)": Decimal("3.00"),
    }
    ours, theirs = values.get(left, 3), values.get(right, 3)
    assert harness.step({"r": StepInput([(theirs, 1)])}).changes == []
    assert harness.step({"l": StepInput([(ours, 2)])}).changes == [(1, (ours, theirs))]


@settings(max_examples=EXAMPLES)
@given(query=test_multi_way.queries(), data=st.data())
def test_multi_way_joins(query: test_multi_way.Query, data: st.DataObject) -> None:
    test_multi_way.check(query, data)
