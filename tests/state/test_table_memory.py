"""Memory that DuckDB has freed goes back to the system, where a worker has little."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pytest

from tests.support.freed import grown_and_left
from watersmeet.state import table_memory
from watersmeet.state.table_memory import TableMemory
from watersmeet.state.working_sets import WorkingSets

_ENTRIES = "SELECT sum(approximate_size)::INT FROM duckdb_eviction_queues()"
_JOIN = "SELECT count(*) FROM (SELECT range AS k FROM range(500)) JOIN (SELECT range AS k FROM range(500)) USING (k)"
_FREES = """
import re
from pathlib import Path

import duckdb

from watersmeet.state.table_memory import TableMemory

connection = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": "200000kB"})

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) // 1024

before = resident()
connection.execute("CREATE TABLE t AS SELECT range, md5(range::VARCHAR) || md5(range::VARCHAR) FROM range(1000000)")
grown = resident() - before
connection.execute("DROP TABLE t")
TableMemory(connection, 200_000_000).give_back()
print(grown, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the resident size from /proc")
def test_tables_that_are_dropped_are_given_back() -> None:
    grown, left = grown_and_left(_FREES)
    assert grown >= 70
    assert left < 0.5 * grown


def entries(connection: duckdb.DuckDBPyConnection) -> int:
    ((found,),) = connection.execute(_ENTRIES).fetchall()
    return int(found)


def test_entries_of_freed_blocks_are_forgotten_and_tables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": "100000kB"})
    connection.execute("CREATE TABLE t AS SELECT range AS n, md5(range::VARCHAR) AS text FROM range(100000)")
    stored = connection.execute("SELECT sum(n), max(text) FROM t").fetchall()
    memory = TableMemory(connection, 100_000_000)
    for _ in range(20):
        connection.execute(_JOIN).fetchall()
    many = entries(connection)
    memory.give_back()
    assert entries(connection) == many > 300  # few are left where they are
    monkeypatch.setattr(table_memory, "_MOST_ENTRIES", 300)
    memory.give_back()
    assert entries(connection) == 0
    assert connection.execute("SELECT current_setting('memory_limit')").fetchall() == [("95.3 MiB",)]
    assert connection.execute("SELECT sum(n), max(text) FROM t").fetchall() == stored


def test_what_cannot_be_spilled_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, say: but the tables fit in memory."""
    monkeypatch.setattr(table_memory, "_MOST_ENTRIES", 0)
    (tmp_path / "file").touch()
    folder = f"{tmp_path}/file/folder"
    connection = duckdb.connect(config={"threads": 1, "memory_limit": "200000kB", "temp_directory": folder})
    connection.execute("CREATE TABLE t AS SELECT range AS n, md5(range::VARCHAR) AS text FROM range(500000)")
    TableMemory(connection, 200_000_000).give_back()
    assert connection.execute("SELECT current_setting('memory_limit')").fetchall() == [("190.7 MiB",)]
    assert connection.execute("SELECT count(*) FROM t WHERE length(text) = 32").fetchall() == [(500_000,)]


@pytest.mark.parametrize("has_little_memory", [True, False])
def test_only_a_worker_with_little_memory_gives_back(has_little_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_memory, "_MOST_ENTRIES", 0)
    sets = WorkingSets(keyed_bytes=1 << 20, table_bytes=100_000_000, has_little_memory=has_little_memory)
    connection = sets.get("q", "0").connection
    connection.execute(_JOIN).fetchall()
    sets.tidy()
    assert (entries(connection) == 0) == has_little_memory
