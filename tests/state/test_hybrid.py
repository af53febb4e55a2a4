"""Joins that keep only the rows in use in memory: the same results, over state many times the size of the memory."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from watersmeet.state.disk_tables import DiskTables
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
