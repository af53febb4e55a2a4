"""An index lookup finds the rows of its keys that a scan finds, and replaces the scan only where it pays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.support.index_lookups import always_looked_up
from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.state import keyed_segments, segment_index, small_segments, working_set
from watersmeet.state.hot_bounds import HotBounds
from watersmeet.state.keyed_segments import KeyedSegments
from watersmeet.state.segments import Segment
from watersmeet.state.working_set import MIN_PROBED_ROWS, ROWS_PER_FOUND, ROWS_PER_PROBE, WorkingSet
from watersmeet.state.working_sets import WorkingSets


@pytest.fixture(autouse=True)
def look_ups() -> Iterator[None]:
    """Keys are looked up whatever is stored, unless a test says otherwise."""
    with always_looked_up():
        yield


def segment(number: int, rows: pa.Table) -> Segment:
    times = rows[TIME].to_pylist()
    return Segment(f"{number}-left", "left", rows.num_rows, rows.nbytes, min(times), max(times), 1)


def table(first: int, keys: list[int | None], names: list[str | None]) -> pa.Table:
    times = range(first, first + len(keys))
    return pa.table({TIME: times, "k": keys, "name": names}, schema=SCHEMA)


SCHEMA = pa.schema([(TIME, pa.int64()), ("k", pa.int32()), ("name", pa.string())])
ROWS = [
    table(0, [1, 2, None, 1], ["a", "b", None, "b"]),
    table(4, [1, None], ["a", "a"]),
    table(6, [3, 2, 2], [None, "b", "b"]),
]


def holding(sets: WorkingSets, rows: list[pa.Table] = ROWS) -> WorkingSet:
    held = sets.get("run", "join", "0")
    for number, each in enumerate(rows):
        held.add(segment(number, each), each)
    return held


def times_of(held: WorkingSet, sql: str | None) -> list[int]:
    return (
        []
        if sql is None
        else sorted(held.connection.sql(f'SELECT "{TIME}" FROM {sql}').to_arrow_table()[0].to_pylist())
    )


def probes(**columns: list[object]) -> pa.Table:
    types = {"k": pa.int32(), "name": pa.string()}
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("probed", "low", "high", "expected"),
    [
        (probes(k=[1]), NEVER, FOREVER, [0, 3, 4]),
        (probes(k=[1, 3, 9, 1]), NEVER, FOREVER, [0, 3, 4, 6]),
        (probes(k=[1]), 3, 3, [3]),
        (probes(k=[None]), NEVER, FOREVER, [2, 5]),
        (probes(name=["b"]), NEVER, FOREVER, [1, 3, 7, 8]),
        (probes(name=[None, "c"]), 3, FOREVER, [6]),
        (probes(k=[2, None], name=["b", "a"]), NEVER, FOREVER, [1, 5, 7, 8]),
        (probes(k=[9]), NEVER, FOREVER, []),
        (probes(k=[]), NEVER, FOREVER, []),
    ],
)
def test_rows_of_a_key_are_found(probed: pa.Table, low: int, high: int, expected: list[int]) -> None:
    held = holding(WorkingSets(keyed_bytes=1 << 30))
    assert times_of(held, held.rows_with_keys("left", probed.column_names, probed, low, high)) == expected
    held.release()
    assert times_of(held, held.scan("left", low, high)) == [t for t in range(9) if low <= t <= high]
    assert [held.count("left", low) for low in (0, 3, 8, 9)] == [9, 6, 1, 0]


@pytest.mark.parametrize("in_arrow", [False, True])
@pytest.mark.parametrize(
    ("key", "low", "high", "expected"),
    [("1", NEVER, FOREVER, [0, 3, 4]), ("1", 1, 3, [3]), ("NULL", NEVER, FOREVER, [2, 5]), ("9", NEVER, FOREVER, [])],
)
def test_probes_in_sql_find_the_rows_of_their_keys(
    key: str, low: int, high: int, expected: list[int], in_arrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables have an index by key and time; rows in Arrow are scanned."""
    monkeypatch.setattr(working_set, "MIN_INDEXED", 1)
    monkeypatch.setattr(segment_index, "CHUNK", 1)
    held = holding(WorkingSets(keyed_bytes=1 << 30))
    if in_arrow:
        held.rows_with_keys("left", ["k"], probes(k=[1]))
        held.release()
    probe = f"(SELECT CAST({key} AS INTEGER) AS k)"
    found = times_of(held, held.rows_with_keys("left", ["k"], probe, low, high))
    assert found == ([t for t in range(9) if low <= t <= high] if in_arrow else expected)
    assert times_of(held, held.rows_with_keys("left", [], probe, low, high)) == times_of(
        held, held.scan("left", low, high)
    )


def test_segments_added_and_removed_later_are_looked_up_too() -> None:
    held = holding(WorkingSets(keyed_bytes=1 << 30))
    one = probes(k=[1])
    held.rows_with_keys("left", ["k"], one)
    held.release()
    held.remove("0-left")
    more = table(20, [1, 1], ["x", "y"])
    held.add(segment(3, more), more)
    assert times_of(held, held.rows_with_keys("left", ["k"], one)) == [4, 20, 21]
    assert held.read([segment(1, ROWS[1]), segment(3, more)]).num_rows == 4
    held.close()
    assert held.connection.sql("FROM duckdb_views() WHERE NOT internal").fetchall() == []
    assert held.connection.sql("SHOW TABLES").fetchall() == []


def test_small_segments_are_beside_those_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_segments, "SMALL_ROWS", 3)
    held = holding(WorkingSets(keyed_bytes=1 << 30))
    found = times_of(held, held.rows_with_keys("left", ["k"], probes(k=[1])))
    assert found == [0, 3, 4, 5]  # 4 and 5 are in the small one


@pytest.mark.parametrize("keyed_bytes", [0, ROWS[0].nbytes, 1 << 30])
def test_rows_beyond_the_budget_are_found_in_files(keyed_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_segments, "_SCANNED_ROWS", 2)
    held = holding(WorkingSets(keyed_bytes=keyed_bytes))
    one = probes(k=[1])
    assert times_of(held, held.rows_with_keys("left", ["k"], one)) == [0, 3, 4]
    for number in (3, 4):
        more = table(10 * number, [1, 2], ["x", "y"])
        held.add(segment(number, more), more)
        assert 10 * number in times_of(held, held.rows_with_keys("left", ["k"], one))
        held.release()
    held.remove("1-left")
    assert times_of(held, held.rows_with_keys("left", ["k"], one)) == [0, 3, 30, 40]
    assert times_of(held, held.scan("left")) == [*range(4), *range(6, 9), 30, 31, 40, 41]
    assert times_of(held, held.scan("left", 7, 30)) == [7, 8, 30]
    assert held.count("left", 8) == 5
    assert held.read([segment(3, table(30, [1, 2], ["x", "y"])), segment(0, ROWS[0])]).num_rows == 6


def test_all_sets_share_one_budget() -> None:
    sets = WorkingSets(keyed_bytes=100_000)
    for _ in range(3):
        for bucket in "01":
            held = sets.get("run", "join", bucket)
            for number, each in enumerate(ROWS):
                held.add(segment(number, each), each)
            assert times_of(held, held.rows_with_keys("left", ["k"], probes(k=[1]))) == [0, 3, 4]
            held.release()
        assert sets.keyed_bytes_left < 100_000
        sets.forget()
        assert sets.keyed_bytes_left == 100_000


def test_a_hybrid_join_finds_rows_by_key_and_keeps_few_in_memory() -> None:
    sets = WorkingSets(keyed_bytes=1 << 30)
    held = sets.get("run", "join", "0")
    segments = [segment(number, each) for number, each in enumerate(ROWS)]
    held.sync(segments, lambda each: ROWS[segments.index(each)], hot=HotBounds(rows=3))
    found = held.rows_with_keys("left", ["k"], probes(k=[1]))
    assert times_of(held, found) == [0, 3, 4]
    held.release()
    in_memory = (1 << 30) - sets.keyed_bytes_left
    held.move_to_disk(segments, HotBounds(rows=0))
    assert in_memory - ((1 << 30) - sets.keyed_bytes_left) == ROWS[2].nbytes
    assert times_of(held, held.rows_with_keys("left", ["k"], probes(k=[2]))) == [1, 7, 8]
    assert times_of(held, held.scan("left")) == list(range(9))


def test_few_rows_and_many_probes_are_joined_by_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_set, "MIN_PROBED_ROWS", MIN_PROBED_ROWS)
    monkeypatch.setattr(working_set, "ROWS_PER_PROBE", ROWS_PER_PROBE)
    keys = list(range(MIN_PROBED_ROWS))
    rows = table(0, [*keys], ["a"] * len(keys))
    held = holding(WorkingSets(keyed_bytes=1 << 30), [rows.slice(0, MIN_PROBED_ROWS - 1)])
    assert len(times_of(held, held.rows_with_keys("left", ["k"], probes(k=[1])))) == MIN_PROBED_ROWS - 1
    last = rows.slice(MIN_PROBED_ROWS - 1)
    held.add(segment(1, last), last)
    many = probes(k=[*range(MIN_PROBED_ROWS // ROWS_PER_PROBE + 1)])
    assert len(times_of(held, held.rows_with_keys("left", ["k"], many))) == MIN_PROBED_ROWS
    assert times_of(held, held.rows_with_keys("left", ["k"], many.slice(1))) == [*range(1, many.num_rows)]


def test_keys_of_many_rows_are_joined_by_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_set, "ROWS_PER_FOUND", ROWS_PER_FOUND)
    hot, cold = [1, 2, 3, 4, 5, *range(6, 96)], range(100, 10_000)
    rows = [table(10_000 * part, [*(hot * 2), *cold], ["a"] * (2 * len(hot) + len(cold))) for part in range(2)]
    held = holding(WorkingSets(keyed_bytes=1 << 30), rows)
    number = sum(each.num_rows for each in rows)
    everything, few = probes(k=[*range(1_000)]), probes(k=[1, 2])
    # the first look is into a table: where its rows have many of the keys, they stay there
    assert len(times_of(held, held.rows_with_keys("left", ["k"], everything))) == number
    assert len(held.connection.sql("FROM duckdb_tables()").fetchall()) == 2
    assert len(times_of(held, held.rows_with_keys("left", ["k"], few))) == 8
    held.release()
    assert held.connection.sql("FROM duckdb_tables()").fetchall() == []
    # later ones are into the index
    assert len(times_of(held, held.rows_with_keys("left", ["k"], everything))) == number


def test_rows_out_of_reach_are_not_counted_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_set, "ROWS_PER_FOUND", 4)
    rows = [table(0, [1] * 40, ["a"] * 40), table(50, [*range(1, 51)], ["a"] * 50)]
    held = holding(WorkingSets(keyed_bytes=1 << 30), rows)
    held.rows_with_keys("left", ["k"], probes(k=[2]))
    held.release()
    assert times_of(held, held.rows_with_keys("left", ["k"], probes(k=[1]), 50, FOREVER)) == [50]
    assert len(times_of(held, held.rows_with_keys("left", ["k"], probes(k=[1])))) == 90


def test_a_part_of_a_batch_does_not_keep_the_batch() -> None:
    held = holding(WorkingSets(keyed_bytes=1 << 30))
    held.rows_with_keys("left", ["k"], probes(k=[1]))
    held.release()
    before = pa.total_allocated_bytes()
    rows = table(10, [*range(100_000)], ["some text"] * 100_000)
    held.add(segment(3, rows.slice(0, 10)), rows.slice(0, 10))
    del rows
    assert pa.total_allocated_bytes() - before < 10_000
    assert times_of(held, held.rows_with_keys("left", ["k"], probes(k=[9]))) == [19]


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_what_fails_between_leaves_all_rows(monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """A worker may have no memory for a relation's rows in both forms; the step is made again."""
    held = holding(WorkingSets(keyed_bytes=1 << 30))
    calls = itertools.count(1)
    add = KeyedSegments.add

    def failing(self: KeyedSegments, segment: Segment, rows: pa.Table, *, in_memory: bool) -> None:
        if next(calls) == fails:
            raise MemoryError
        add(self, segment, rows, in_memory=in_memory)

    with monkeypatch.context() as patch:
        patch.setattr(KeyedSegments, "add", failing)
        with pytest.raises(MemoryError):
            held.rows_with_keys("left", ["k"], probes(k=[1]))
    assert times_of(held, held.scan("left")) == list(range(9))
    assert {0, 3, 4} <= set(times_of(held, held.rows_with_keys("left", ["k"], probes(k=[1]))))
    held.close()
    assert held.connection.sql("SHOW TABLES").fetchall() == []


def test_places_are_given_anew_when_they_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_segments, "MAX_PLACES", 12)
    held = holding(WorkingSets(keyed_bytes=1 << 30))
    for number in range(3, 30):
        held.rows_with_keys("left", ["k"], probes(k=[1]))
        held.release()
        held.remove(f"{number - 3}-left")
        more = table(10 * number, [100 + number, 1], ["x", "y"])
        held.add(segment(number, more), more)
        assert 10 * number + 1 in times_of(held, held.rows_with_keys("left", ["k"], probes(k=[1])))
        assert times_of(held, held.rows_with_keys("left", ["k"], probes(k=[100 + number]))) == [10 * number]
