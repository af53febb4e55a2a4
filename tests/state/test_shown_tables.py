"""Tables shown to DuckDB: found by name until they are cleared, and by names that are used again."""

from __future__ import annotations

import weakref

import duckdb
import pyarrow as pa

from watersmeet.state.shown_tables import ShownTables


def test_each_table_is_found_as_often_as_it_is_read() -> None:
    connection = duckdb.connect()
    shown = ShownTables(connection)
    one, two = shown.show(pa.table({"a": [1, 2]})), shown.show(pa.table({"b": ["x"]}))
    assert connection.sql(f"SELECT a, b FROM {one}, {two} ORDER BY a").fetchall() == [(1, "x"), (2, "x")]
    both = f"SELECT * FROM {one} AS l JOIN {one} AS r USING (a) UNION ALL SELECT count(*) FROM {one} ORDER BY ALL"
    assert connection.sql(both).fetchall() == [(1,), (2,), (2,)]


def test_names_are_used_again_for_rows_of_other_types() -> None:
    connection = duckdb.connect()
    shown = ShownTables(connection)
    first = shown.show(pa.table({"a": [1]}))
    shown.clear()
    assert shown.show(pa.table({"b": ["x"], "c": [None]})) == first
    assert connection.sql(f"FROM {first}").fetchall() == [("x", None)]
    assert shown.show(pa.table({"a": [1]})) != first


def test_rows_that_are_cleared_are_not_kept() -> None:
    shown = ShownTables(duckdb.connect())
    rows = pa.table({"a": [1]})
    kept = weakref.ref(rows)
    shown.show(rows)
    del rows
    assert kept() is not None
    shown.clear()
    assert kept() is None


def test_two_on_one_connection_have_names_of_their_own() -> None:
    connection = duckdb.connect()
    shown = [ShownTables(connection) for _ in range(2)]
    names = [each.show(pa.table({"a": [number]})) for number, each in enumerate(shown)]
    assert [connection.sql(f"FROM {name}").fetchall() for name in names] == [[(0,)], [(1,)]]
    shown[0].close()
    assert connection.sql("SHOW TABLES").fetchall() == [(names[1],)]
    assert connection.sql(f"FROM {shown[0].show(pa.table({'a': [2]}))}").fetchall() == [(2,)]
