"""Tables of a step that DuckDB's memory may be too little for."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from watersmeet.kernels.optimizers import Optimizers
from watersmeet.kernels.step_tables import StepTables
from watersmeet.state.disk_tables import DiskTables

#: DuckDB holds 256 KB of each of these columns while it fills a table.
COLUMNS = [f"i + {number} AS c{number}" for number in range(100)]
ROWS = 60_000
WIDE = f"SELECT {', '.join(COLUMNS)} FROM range({ROWS}) AS r(i)"


@pytest.fixture
def tables(tmp_path: Path) -> StepTables:
    connection = duckdb.connect(config={"threads": 1, "memory_limit": "15MB", "temp_directory": str(tmp_path)})
    return StepTables(connection, Optimizers(connection), DiskTables(connection).table)


def held(tables: StepTables, name: str) -> tuple[int, int, int]:
    (found,) = tables._connection.execute(f"SELECT count(*), min(c7), max(rowid) FROM {name}").fetchall()
    return found


def places(tables: StepTables) -> list[tuple[str, str]]:
    """The tables with their databases."""
    return tables._connection.execute("SELECT table_name, database_name FROM duckdb_tables() ORDER BY ALL").fetchall()


def test_a_table_that_memory_has_no_room_for_is_on_disk(tables: StepTables) -> None:
    for _ in range(2):
        assert tables.make("wide", WIDE) == ROWS
        assert tables.make("narrow", f"SELECT c7 FROM ({WIDE})") == ROWS
        name, rows = tables.add(f"SELECT c7 FROM wide WHERE c7 > {ROWS}")
        assert rows == 6
        assert places(tables) == [("narrow", "temp"), (name, "temp"), ("wide", "disk")]
        assert held(tables, "wide") == held(tables, "narrow") == (ROWS, 7, ROWS - 1)
        tables.drop("wide")
        assert places(tables) == [("narrow", "temp"), (name, "temp")]
        tables.drop_all()
        assert places(tables) == []


def test_rows_are_added_to_a_table_until_memory_has_no_room(tables: StepTables) -> None:
    tables.make("wide", f"{WIDE} LIMIT 10")
    assert places(tables) == [("wide", "temp")]
    for _ in range(2):
        assert tables.extend("wide", f"{WIDE} OFFSET 10") == ROWS - 10
        assert places(tables) == [("wide", "disk")]
    assert held(tables, "wide") == (2 * ROWS - 10, 7, 2 * ROWS - 11)


def test_a_table_is_replaced_wherever_it_is(tables: StepTables) -> None:
    tables.make("wide", f"{WIDE} LIMIT 10")
    assert tables.remake("wide", f"SELECT * FROM wide UNION ALL ({WIDE} OFFSET 10)") == ROWS
    assert places(tables) == [("wide", "disk")]
    assert tables.remake("wide", "SELECT c7 FROM wide WHERE c7 < 9") == 2
    assert held(tables, "wide") == (2, 7, 1)
    tables.drop_all()
    assert places(tables) == []
