"""Tables registered with DuckDB: found by name until they are released; names are used again."""

from __future__ import annotations

import weakref

import duckdb
import pyarrow as pa

from watersmeet.state.registered_tables import RegisteredTables


def test_each_table_is_found_as_often_as_it_is_read() -> None:
    connection = duckdb.connect()
    tables = RegisteredTables(connection)
    one, two = tables.register(pa.table({"a": [1, 2]})), tables.register(pa.table({"b": ["x"]}))
    assert connection.sql(f"SELECT a, b FROM {one}, {two} ORDER BY a").fetchall() == [(1, "x"), (2, "x")]
    both = f"SELECT * FROM {one} AS l JOIN {one} AS r USING (a) UNION ALL SELECT count(*) FROM {one} ORDER BY ALL"
    assert connection.sql(both).fetchall() == [(1,), (2,), (2,)]


def test_names_are_used_again_for_the_same_columns_in_the_same_order() -> None:
    tables = RegisteredTables(duckdb.connect())
    rows = [pa.table({"a": [1]}), pa.table({"a": [2]}), pa.table({"b": ["x"]})]
    names = [tables.register(each) for each in rows]
    tables.release()
    assert [tables.register(each) for each in rows] == names
    tables.release()
    assert [tables.register(each) for each in rows[1:]] == [names[0], names[2]]
    assert tables.register(pa.table({"a": ["of another type"]})) not in names


def test_rows_that_are_released_are_not_kept() -> None:
    tables = RegisteredTables(duckdb.connect())
    rows = pa.table({"a": [1]})
    kept = weakref.ref(rows)
    tables.register(rows)
    del rows
    assert kept() is not None
    tables.release()
    assert kept() is None


def test_two_on_one_connection_have_names_of_their_own() -> None:
    connection = duckdb.connect()
    tables = [RegisteredTables(connection) for _ in range(2)]
    names = [each.register(pa.table({"a": [number]})) for number, each in enumerate(tables)]
    assert [connection.sql(f"FROM {name}").fetchall() for name in names] == [[(0,)], [(1,)]]
    tables[0].close()
    assert connection.sql("SHOW TABLES").fetchall() == [(names[1],)]
    assert connection.sql(f"FROM {tables[0].register(pa.table({'a': [2]}))}").fetchall() == [(2,)]
