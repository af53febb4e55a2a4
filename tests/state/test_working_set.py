"""Working sets are a cache: synced by set difference, trimmed by use, and never needed for a correct result."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from watersmeet.columns import TIME
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.state.hot_bounds import HotBounds
from watersmeet.state.segments import Segment, read_segment, write_segment
from watersmeet.state.small_segments import SMALL_BYTES, SMALL_ROWS
from watersmeet.state.store import MemoryStore
from watersmeet.state.working_set import WorkingSet
from watersmeet.state.working_sets import WorkingSets
from watersmeet.testing.harness import Harness, StepInput, load_script


def rows(*times: int) -> pa.Table:
    return pa.table({TIME: pa.array(times, pa.int64())})


def make(store: MemoryStore, *relations: str) -> list[Segment]:
    """Two rows in each segment: segment i has the times 10 i and 10 i + 5."""
    return [write_segment(store, i, name, rows(10 * i, 10 * i + 5)) for i, name in enumerate(relations)]


def scanned(working_set: WorkingSet, relation: str, low: int, high: int) -> list[int]:
    sql = working_set.scan(relation, low, high)
    return [] if sql is None else sorted(t for t, *_ in working_set.connection.sql(f"SELECT * FROM {sql}").fetchall())


@pytest.fixture
def sets() -> WorkingSets:
    return WorkingSets(keyed_bytes=1 << 30)


def test_sync_loads_what_is_missing_and_drops_what_is_gone(sets: WorkingSets) -> None:
    store = MemoryStore()
    segments = make(store, "left", "left", "right")
    loaded: list[str] = []

    def load(segment: Segment) -> pa.Table:
        loaded.append(segment.id)
        return read_segment(store, segment)

    working_set = sets.get("run", "join", "0")
    assert working_set.sync(segments[:2], load) == segments[0].nbytes + segments[1].nbytes
    assert working_set.sync(segments[:2], load) == 0
    assert working_set.sync(segments[1:], load) == segments[2].nbytes
    assert loaded == [each.id for each in segments]
    assert working_set.nbytes == segments[1].nbytes + segments[2].nbytes
    assert scanned(working_set, "left", 0, 99) == [10, 15]
    assert working_set.sync([], load) == 0
    assert scanned(working_set, "left", 0, 99) == []
    working_set.close()
    assert working_set.connection.sql("SHOW TABLES").fetchall() == []


@given(
    live=st.sets(st.integers(0, 5)), after=st.sets(st.integers(0, 5)), low=st.integers(-5, 70), span=st.integers(0, 70)
)
@example(live={0, 2}, after={0}, low=5, span=65)
def test_a_scan_gives_the_live_rows_of_the_range(live: set[int], after: set[int], low: int, span: int) -> None:
    store = MemoryStore()
    segments = make(store, "left", "right", "left", "right", "left", "left")
    large = (3, 4)  # have a table of their own, the others share one
    for i in large:
        segments[i] = write_segment(store, i, segments[i].relation, rows(*[10 * i, 10 * i + 5] * SMALL_ROWS))
    sets = WorkingSets(keyed_bytes=1 << 30)
    working_set = sets.get("run")
    for chosen in (live, after):
        working_set.sync([segments[i] for i in chosen], lambda segment: read_segment(store, segment))
        for relation in ("left", "right"):
            here = [i for i in chosen if segments[i].relation == relation]
            held = [t for i in here for t in [10 * i, 10 * i + 5] * (SMALL_ROWS if i in large else 1)]
            assert scanned(working_set, relation, low, low + span) == sorted(t for t in held if low <= t <= low + span)
            assert working_set.count(relation, low) == sum(t >= low for t in held)
            if here:
                assert sorted(working_set.read([segments[i] for i in here])[TIME].to_pylist()) == sorted(held)


def test_rows_that_came_out_of_duckdb_lie_beside_others(sets: WorkingSets) -> None:
    """DuckDB gives an Arrow duration back as an interval, and a struct's fields as nullable."""
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])

    def timed(*times: int) -> pa.Table:
        structs = pa.array([{"a": time} for time in times[:-1]] + [None], inner)
        return rows(*times).append_column("d", pa.array(times, pa.duration("us"))).append_column("s", structs)

    store, working_set = MemoryStore(), sets.get("run")
    large = write_segment(store, 0, "left", timed(*range(SMALL_ROWS)))
    small = [write_segment(store, number, "left", timed(-number, -number - 10)) for number in (1, 2)]
    working_set.sync([large, *small], lambda segment: read_segment(store, segment))
    merged = working_set.read([large, small[0]])
    assert sorted(merged[TIME].to_pylist()) == sorted([*range(SMALL_ROWS), -1, -11])
    fewer = write_segment(store, 3, "left", merged.filter(pc.less(merged[TIME], 5)))
    for together in ([fewer, small[1]], [small[1], fewer]):
        working_set.sync([], lambda segment: read_segment(store, segment))
        working_set.sync(together, lambda segment: read_segment(store, segment))
        expected = sorted([-1, -11, -2, -12, *range(5)])
        assert scanned(working_set, "left", -100, 100) == expected
        assert sorted(working_set.read(together)[TIME].to_pylist()) == expected
        found = working_set.connection.sql(f"SELECT epoch_us(d), s.a FROM {working_set.scan('left')}").fetchall()
        assert sorted(d for d, _ in found) == expected


def test_few_rows_that_are_large_may_lie_on_disk(sets: WorkingSets) -> None:
    store, working_set = MemoryStore(), sets.get("run")
    large = write_segment(store, 0, "left", rows(1, 2).append_column("v", pa.array(["x" * SMALL_BYTES] * 2)))
    small = write_segment(store, 1, "left", rows(3, 4).append_column("v", pa.array(["x"] * 2)))
    working_set.sync([large, small], lambda segment: read_segment(store, segment), hot=HotBounds(rows=0))
    on_disk = "SELECT sum(estimated_size) FROM duckdb_tables() WHERE database_name = 'disk'"
    assert working_set.connection.sql(on_disk).fetchall() == [(2,)]
    assert scanned(working_set, "left", 0, 9) == [1, 2, 3, 4]


SQL = """
CREATE STREAM a (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS) WITH (event_time_unit = 's');
CREATE STREAM b (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS) WITH (event_time_unit = 's');
SELECT a.v AS av, b.v AS bv FROM a {kind} JOIN b ON a.k = b.k WITHIN INTERVAL '4' SECONDS EMIT {emit};
"""


def outputs(sql: str, seed: int, workers: list[WorkingSets] | None = None) -> list[Counter[Any]]:
    """The changes of each step; with ``workers``, any of them takes the whole step, and caches are lost at random."""
    rng, chance = random.Random(seed), random.Random(seed + 1)
    harness = Harness(*load_script(sql), buckets=3)
    found = []
    for number in range(10):
        inputs = {
            name: StepInput(
                [(rng.randrange(4), 10 * number + i, number + rng.randrange(4)) for i in range(rng.randrange(5))]
            )
            for name in "ab"
        }
        if workers is not None:
            harness._working_sets = chance.choice(workers)
            if chance.random() < 0.2:
                chance.choice(workers).forget()
        outcome = harness.step(inputs)
        if workers is not None:
            harness._working_sets.tidy()
        found.append(consolidated(outcome.changes))
    found.append(consolidated(harness.step({}, [Event(EventKind.END)]).changes))
    return found


def consolidated(changes: list[tuple[int, Any]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for weight, row in changes:
        found[row] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


@settings(max_examples=max(settings.default.max_examples // 12, 1) if settings.default else 4)
@given(seed=st.integers(0, 10_000), cap=st.sampled_from([0, 1 << 30]), emit=st.sampled_from(["FINAL", "CHANGELOG"]))
def test_more_buckets_than_workers_and_caches_lost_at_random_change_nothing(seed: int, cap: int, emit: str) -> None:
    sql = SQL.format(kind="FULL", emit=emit)
    workers = [WorkingSets(keyed_bytes=cap), WorkingSets(keyed_bytes=cap)]
    assert outputs(sql, seed, workers) == outputs(sql, seed)


def test_idle_sets_are_closed_and_the_newest_stays() -> None:
    sets = WorkingSets(keyed_bytes=1 << 30, idle_seconds=0.0)
    ended, running = sets.get("ended", "join_1", "0"), sets.get("running", "join_1", "0")
    sets.tidy()
    assert sets.get("running", "join_1", "0") is running
    assert sets.get("ended", "join_1", "0") is not ended


def test_segments_of_two_schemas_are_read_as_often_as_asked(sets: WorkingSets) -> None:
    working_set, kinds = sets.get("run"), [pa.list_(pa.int32()), pa.list_(pa.field("x", pa.int32(), nullable=False))]
    for first in range(0, 10, 2):
        both = []
        for time, kind in enumerate(kinds, first):
            both.append(Segment(f"{time}-left", "left", 1, 100, time, time, 1))
            working_set.add(both[-1], rows(time).append_column("l", pa.array([[time]], kind)))
        assert sorted(working_set.read(both)[TIME].to_pylist()) == [first, first + 1]


def test_a_query_is_prepared_while_all_segments_are_small(sets: WorkingSets) -> None:
    store, working_set = MemoryStore(), sets.get("run")
    small = write_segment(store, 0, "left", rows(1, 2, 3))
    large = write_segment(store, 1, "right", rows(*range(SMALL_ROWS)))
    for live, has_large in (([small], False), ([small, large], True)):
        working_set.sync(live, lambda segment: read_segment(store, segment))
        for low in (1, 2, 3):
            sql = f"SELECT count(*) AS n FROM {working_set.scan('left', low)} WHERE {has_large} IS NOT NULL"
            assert working_set.query(sql)["n"].to_pylist() == [4 - low]
            working_set.release()
        prepared = working_set.connection.execute("SELECT statement FROM duckdb_prepared_statements()").fetchall()
        assert ["false IS" in sql for (sql,) in prepared] == [True]
