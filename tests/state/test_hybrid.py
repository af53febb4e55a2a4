"""Only the rows in use are in memory: the same results, over state many times the size of the memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.support.index_lookups import always_looked_up
from watersmeet.bind.planning import plan_query
from watersmeet.errors import ConfigError
from watersmeet.kernels.aggregate import step as aggregate_step
from watersmeet.plan.explain import explain
from watersmeet.settings.query_settings import parse_settings
from watersmeet.state.disk_tables import DiskTables, is_on_disk
from watersmeet.state.found_rows import FoundRows
from watersmeet.state.hot_bounds import HotBounds, newest_segments
from watersmeet.state.key_hashes import Numbers
from watersmeet.state.segments import Segment
from watersmeet.state.working_set import WorkingSet
from watersmeet.testing.harness import Harness, StepInput, load_script

SQL = """
CREATE MUTABLE STREAM l (k INT, v STRING) PRIMARY KEY (k);
CREATE MUTABLE STREAM r (k INT, w STRING) PRIMARY KEY (k);
SELECT {columns} FROM l FULL JOIN r ON l.k = r.k EMIT CHANGELOG {settings};
"""
COLUMNS = "l.k AS x, r.k AS y, l.v, r.w"


def run(
    settings: str, *, keys: int, rows: int, steps: int, width: int = 400, table_bytes: int | None = None
) -> tuple[Any, int, int]:
    """The accumulated changes of random updates, with a restart in the middle; rows on disk and bytes of state."""
    rng = random.Random(5)
    script = load_script(SQL.format(columns=COLUMNS, settings=settings))
    harness = Harness(*script, buckets=2, table_bytes=table_bytes)
    found: Counter[object] = Counter()
    for step in range(steps):
        if step == steps // 2:
            harness.restart()
        inputs = {s: StepInput([(rng.randrange(keys), f"{rng.random():0<{width}}") for _ in range(rows)]) for s in "lr"}
        for weight, row in harness.step(inputs).changes:
            found[row] += weight
        assert all(weight >= 0 for weight in found.values())
    connection = harness._working_sets.get("join_1", "0").connection
    sql = "SELECT coalesce(sum(estimated_size), 0) FROM duckdb_tables() WHERE database_name = 'disk'"
    ((on_disk,),) = connection.sql(sql).fetchall()
    state = sum(value for name, value in harness.step({}).counters.items() if name.endswith("state_bytes"))
    harness.restart()
    return +found, int(on_disk), state


@pytest.mark.slow
def test_a_hybrid_join_gives_what_one_in_memory_gives() -> None:
    size: dict[str, Any] = {"keys": 4_000, "rows": 1_500, "steps": 8}
    expected, on_disk, _ = run("", **size)
    assert on_disk == 0
    found, on_disk, _ = run("SETTINGS default_hash_join = 'hybrid', max_hot_keys = 1000", **size)
    assert found == expected
    assert on_disk > 2_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_key_space_five_times_the_memory_given() -> None:
    size: dict[str, Any] = {"keys": 130_000, "rows": 2_000, "steps": 170, "width": 2_000}
    expected, _, _ = run("", **size)
    settings = "SETTINGS default_hash_join = 'hybrid', max_hot_keys = 4000"
    found, _, state = run(settings, **size, table_bytes=96_000_000)
    assert found == expected
    assert state > 5 * 96_000_000


def test_the_database_on_disk_takes_back_the_room_of_dropped_tables() -> None:
    connection = duckdb.connect()
    tables = DiskTables(connection)
    for number in range(3):
        connection.execute(f"CREATE TABLE {tables.table(f't{number}')} AS SELECT range AS i FROM range(500000)")
        connection.execute(f"DROP TABLE {tables.table(f't{number}')}")
        connection.execute("CHECKPOINT disk")
    sql = "SELECT used_blocks FROM pragma_database_size() WHERE database_name = 'disk'"
    ((used,),) = connection.sql(sql).fetchall()
    assert used < 4


SKEWED = """
CREATE MUTABLE STREAM l (k INT, v STRING) PRIMARY KEY (k);
CREATE MUTABLE STREAM r (k INT, w INT) PRIMARY KEY (k);
CREATE STREAM o (k INT, w INT);
"""
QUERIES = {
    "join_1": "SELECT l.k AS x, r.k AS y, l.v, r.w FROM l LEFT JOIN r ON l.k = r.k",
    "aggregate": "SELECT k, count(*) AS n, sum(w) AS w, min(w) AS least FROM o GROUP BY k",
}


def hot_part(held: WorkingSet) -> tuple[int, int]:
    """How many rows of segments and found rows are in memory, and their bytes."""
    kept = [each for each in held._segments.values() if not is_on_disk(held._tables.get(each.id, ""))]
    kept = [each for each in kept if each.relation not in held._keyed or each.id in held._keyed[each.relation]._taken]
    rows = sum(each.rows for each in kept) + held._found.rows
    return rows, sum(each.nbytes for each in kept) + held._found.nbytes


@pytest.mark.sample(2)
@pytest.mark.parametrize("operator", QUERIES)
@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        pytest.param("max_hot_keys = 160", HotBounds(rows=160), marks=pytest.mark.slow),
        pytest.param("max_hot_bytes = '8kB'", HotBounds(nbytes=8_000), marks=pytest.mark.slow),
        ("max_hot_keys = 200, max_hot_bytes = 8000", HotBounds(200, 8_000)),
    ],
)
def test_hot_rows_are_found_in_memory_within_the_bounds_with_the_same_results(
    operator: str, settings: str, bounds: HotBounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All keys are written once; then changes of a few keys of the other side, or groups, come again and again."""
    monkeypatch.setattr(aggregate_step, "MIN_SETTLED", 0)  # so that groups are found that are not written again
    served: list[int] = []
    in_files: list[int] = []
    find = FoundRows.find

    def counting(self: FoundRows, owner: str, places: Numbers) -> tuple[list[pa.Table], Numbers]:
        tables, others = find(self, owner, places)
        served.append(len(places) - len(others))
        return tables, others

    monkeypatch.setattr(FoundRows, "find", counting)

    def run(settings: str, bounds: HotBounds | None) -> list[Counter[object]]:
        rng = random.Random(3)
        harness = Harness(*load_script(f"{SKEWED} {QUERIES[operator]} EMIT CHANGELOG {settings};"), buckets=1)
        name = harness._operators[0].name
        results = []
        for step in range(16):
            if step == 12:
                harness.restart()
            hot = [(rng.randrange(12) if rng.random() < 0.8 else rng.randrange(400), step) for _ in range(8)]
            everything = [(key, key) for key in range(400)]
            results.append(Counter[object]())
            first = {"l": StepInput([(key, f"{key:020}") for key, _ in everything]), "o": StepInput(everything)}
            for weight, row in harness.step({"r": StepInput(hot), "o": StepInput(hot)} if step else first).changes:
                results[-1][row] += weight
            held = harness._working_sets.get(name, "0")
            assert bounds is None or bounds.allow(*hot_part(held))
            in_files.append(held.disk_bytes)
        harness.restart()
        return results

    with always_looked_up():
        expected = run("", None)
        assert sum(served) == sum(in_files) == 0
        found = run(f"SETTINGS default_hash_join = 'hybrid', default_hash_table = 'hybrid', {settings}", bounds)
    assert found == expected
    assert sum(served) > 20
    assert max(in_files) > 8_000


def segments(*sizes: tuple[int, int]) -> Sequence[Segment]:
    return [Segment(str(number), "left", rows, nbytes, 0, 0, 1) for number, (rows, nbytes) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("bounds", "beside", "newest"),
    [
        (None, (0, 0), {"0", "1", "2"}),
        (HotBounds(), (0, 0), {"0", "1", "2"}),
        (HotBounds(rows=30), (0, 0), {"1", "2"}),
        (HotBounds(rows=30), (1, 0), {"2"}),
        (HotBounds(nbytes=300), (0, 0), {"1", "2"}),
        (HotBounds(nbytes=300), (0, 101), {"2"}),
        (HotBounds(rows=100, nbytes=299), (0, 0), {"2"}),
        (HotBounds(rows=9, nbytes=1_000), (0, 0), set()),
    ],
)
def test_the_newest_segments_stay_within_both_bounds(
    bounds: HotBounds | None, beside: tuple[int, int], newest: set[str]
) -> None:
    assert newest_segments(segments((10, 100), (20, 200), (10, 100)), bounds, *beside) == newest


@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        ("", HotBounds(rows=250_000)),
        (", max_hot_keys = 2", HotBounds(rows=1)),
        (", max_hot_bytes = '100MB'", HotBounds(nbytes=25_000_000)),
        (", max_hot_bytes = 4000, max_hot_keys = 40", HotBounds(10, 1_000)),
    ],
)
def test_each_bucket_has_its_part_of_the_bounds(settings: str, bounds: HotBounds) -> None:
    script = f"{SKEWED} {QUERIES['join_1']} EMIT CHANGELOG SETTINGS default_hash_join = 'hybrid'{settings};"
    assert Harness(*load_script(script), buckets=4)._operators[0].hot == bounds
    in_memory = f"{SKEWED} {QUERIES['join_1']} EMIT CHANGELOG;"
    assert Harness(*load_script(in_memory), buckets=4)._operators[0].hot is None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("", "at most 1,000,000 rows"),
        (", max_hot_bytes = '100MB'", "at most 100 MB"),
        (", max_hot_keys = 5000, max_hot_bytes = 2500000", "at most 5,000 rows and 2.5 MB"),
    ],
)
def test_the_bounds_are_explained(settings: str, told: str) -> None:
    script = f"{SKEWED} {QUERIES['join_1']} EMIT CHANGELOG SETTINGS default_hash_join = 'hybrid'{settings};"
    streams, query = load_script(script)
    lines = explain(plan_query(query, streams)).splitlines()
    assert f"state of joins: rows written or found last in memory, {told}, the others on disk" in lines


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("600", "write a number and a unit, such as '600MB'"),
        ("lots", "write a number and a unit, such as '600MB'"),
        (0, "greater than 0"),
        (1.5, "integer"),
    ],
)
def test_wrong_bounds_are_refused(value: object, told: str) -> None:
    with pytest.raises(ConfigError, match=f"max_hot_bytes.*{told}"):
        parse_settings({"max_hot_bytes": value})


@pytest.mark.parametrize("name", ["max_hot_keys", "max_hot_bytes"])
def test_bounds_of_no_operator_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} bounds what hybrid joins and aggregates keep") as refused:
        parse_settings({name: 5_000})
    assert refused.value.option == name
    assert "add default_hash_join = 'hybrid'" in str(refused.value.hint)
    for place in ("default_hash_join", "default_hash_table"):
        assert getattr(parse_settings({name: 5_000, place: "hybrid"}), name) == 5_000
