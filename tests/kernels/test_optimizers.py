"""How DuckDB plans the queries of a step, and what that takes."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pytest

from watersmeet.kernels.optimizers import Optimizers
from watersmeet.kernels.step_tables import StepTables
from watersmeet.state import working_set
from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.testing.harness import Harness, StepInput, load_script

SEMI_JOIN = "SELECT * FROM few WHERE EXISTS (SELECT 1 FROM many WHERE many.k = few.k)"


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE many AS SELECT range AS k FROM range(100_000)")
    connection.execute("CREATE TABLE few AS SELECT range AS k FROM range(10)")
    return connection


def plan(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """DuckDB's plan of a query, as text."""
    return str(connection.execute(f"EXPLAIN {sql}").fetchall())


@pytest.mark.parametrize("has_little_memory", [False, True])
def test_joins_are_planned_as_written_in_the_block_alone(
    connection: duckdb.DuckDBPyConnection, has_little_memory: bool
) -> None:
    optimizers = Optimizers(connection, has_little_memory=has_little_memory)
    assert "RIGHT_SEMI" in plan(connection, SEMI_JOIN)
    with optimizers.joins_as_written(False):
        assert "RIGHT_SEMI" in plan(connection, SEMI_JOIN)
    with optimizers.joins_as_written(True):
        assert "RIGHT_SEMI" not in plan(connection, SEMI_JOIN)
    assert "RIGHT_SEMI" in plan(connection, SEMI_JOIN)
    with pytest.raises(duckdb.CatalogException), optimizers.joins_as_written(True):
        connection.execute("SELECT * FROM missing")
    assert "RIGHT_SEMI" in plan(connection, SEMI_JOIN)


JOINS = """
import re
import sys
from pathlib import Path

import duckdb

from watersmeet.kernels.optimizers import Optimizers

def most():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) // 1024

connection = duckdb.connect(config={"threads": 1})
optimizers = Optimizers(connection, has_little_memory=sys.argv[1] == "little")
with optimizers.joins_as_written(False), optimizers.joins_as_written(True):
    pass
columns = ", ".join(f"range * {number} AS c{number}" for number in range(12))
connection.execute(f"CREATE TABLE l AS SELECT range * 49 AS k, {columns} FROM range(20_000)")
connection.execute("CREATE TABLE r AS SELECT * FROM l")
hashes = ", ".join(f"count(hash(r.c{number} + l.c{number}))" for number in range(12))
before = most()
assert connection.execute(f"SELECT {hashes} FROM l JOIN r ON l.k = r.k").fetchall() == [(20_000,) * 12]
print(most() - before)
"""


def grows(memory: str) -> int:
    """By how many megabytes a process grows that joins 20,000 rows of keys from 0 to 979,951."""
    command = [sys.executable, "-c", JOINS, memory]
    return int(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of the resident size from /proc")
def test_with_little_memory_a_join_takes_none_for_keys_that_it_does_not_have() -> None:
    assert grows("much") - grows("little") > 40  # otherwise what is disabled has another name or no need


def test_changes_are_looked_up_from_hash_tables_of_what_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the state in mapped files, whose size DuckDB does not know, it would build them from the state."""
    monkeypatch.setattr(ArrowBudget, "take", lambda *_: False)
    monkeypatch.setattr(working_set, "MIN_PROBED_ROWS", 1_000)
    monkeypatch.setattr(working_set, "ROWS_PER_PROBE", 1)
    harness = Harness(
        *load_script(
            "CREATE MUTABLE STREAM l (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (id) "
            "WITH (event_time_unit = 's'); SELECT id, v FROM l EMIT CHANGELOG"
        ),
        buckets=1,
    )
    harness.step({"l": StepInput([(id, 1, 0) for id in range(30_000)])})
    harness.step({"l": StepInput([(id, 2, 1) for id in range(10)])})
    held = harness._working_sets.get("upsert_1", "0")
    assert held._keyed["rows"]._files
    plans = []
    run = StepTables._run

    def noted(tables: StepTables, sql: str) -> int:
        if sql.startswith('CREATE TEMP TABLE "rows_found"'):
            plans.append(plan(tables._connection, sql))
        return run(tables, sql)

    monkeypatch.setattr(StepTables, "_run", noted)
    outcome = harness.step({"l": StepInput([(id, 3, 2) for id in range(20_000)])})
    assert len(outcome.changes) == 40_000
    assert plans
    assert all("SEMI" in each and "RIGHT_SEMI" not in each for each in plans)
