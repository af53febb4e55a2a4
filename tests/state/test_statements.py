"""Queries that run at every step: prepared when they come again, over the rows of the step."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from watersmeet.state import statements
from watersmeet.state.registered_tables import RegisteredTables
from watersmeet.state.statements import Statements


def prepared(connection: duckdb.DuckDBPyConnection) -> int:
    return len(connection.execute("SELECT name FROM duckdb_prepared_statements()").fetchall())


def test_a_query_that_comes_again_is_prepared_and_reads_the_rows_of_each_step() -> None:
    connection = duckdb.connect()
    tables, queries = RegisteredTables(connection), Statements(connection)
    for step in range(4):
        left, right = (tables.register(pa.table({"k": range(step + more)})) for more in (1, 2))
        found = queries.query(f"SELECT l.k FROM {left} AS l JOIN {right} AS r USING (k) ORDER BY l.k")
        assert found["k"].to_pylist() == list(range(step + 1))
        tables.release()
        assert prepared(connection) == (step > 0)
    queries.forget()
    assert prepared(connection) == 0


def test_as_many_queries_as_ran_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_MOST", 2)
    connection = duckdb.connect()
    queries = Statements(connection)
    for number in (1, 2, 1, 2, 1, 3, 1, 1):
        assert queries.query(f"SELECT {number} AS n").to_pylist() == [{"n": number}]
    assert prepared(connection) == 1  # 2 was forgotten when 3 came
    assert queries.query("SELECT 2 AS n").num_rows == 1
    assert prepared(connection) == 1


def test_an_error_leaves_a_query_as_it_was() -> None:
    connection = duckdb.connect()
    tables, queries = RegisteredTables(connection), Statements(connection)
    for text, is_number in (("1", True), ("x", False), ("2", True), ("y", False), ("3", True)):
        name = tables.register(pa.table({"t": [text]}))
        if is_number:
            assert queries.query(f"SELECT CAST(t AS INT) AS n FROM {name}").to_pylist() == [{"n": int(text)}]
        else:
            with pytest.raises(duckdb.ConversionException):
                queries.query(f"SELECT CAST(t AS INT) AS n FROM {name}")
        tables.release()
    assert prepared(connection) <= 1
