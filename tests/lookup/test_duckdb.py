"""Lookups in tables of a DuckDB file."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.lookup.tables import SCHEMA, keys, rows
from tests.support.jobs import environment
from watersmeet.errors import ConnectorError
from watersmeet.lookup.cache import LookupCache
from watersmeet.lookup.duckdb_tables import DuckDbSource
from watersmeet.lookup.key_batch import look_up
from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.lookup.source import UnavailableError


def run(path: Path, *statements: str) -> None:
    with duckdb.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    run(
        path,
        "CREATE SCHEMA sales",
        'CREATE TABLE sales.customers ("ID" BIGINT, name VARCHAR)',
        "INSERT INTO sales.customers VALUES (1, 'one'), (2, 'two'), (2, 'zwei'), (4, NULL)",
    )
    return path


def source(path: Path, schema: pa.Schema = SCHEMA, table: str = "sales.customers") -> DuckDbSource:
    return DuckDbSource(str(path), table, schema, "c")


def test_rows_by_keys_of_one_column_and_of_several(shop: Path) -> None:
    table = source(shop)
    table.check()
    assert sorted(rows(table.fetch(keys(*range(20_000)))), key=repr) == [(1, "one"), (2, "two"), (2, "zwei"), (4, None)]
    wanted = pa.table({"id": [1, 2, 2, 9], "name": ["two", "two", "zwei", "one"]})
    assert sorted(rows(table.fetch(wanted))) == [(2, "two"), (2, "zwei")]


def test_a_view_and_texts_that_a_collation_takes_for_equal(shop: Path) -> None:
    run(shop, "CREATE TABLE people (name VARCHAR COLLATE NOCASE, n INT)", "CREATE VIEW known AS FROM people")
    run(shop, "INSERT INTO people VALUES ('One', 1), ('one', 2)")
    schema = pa.schema([("name", pa.string()), ("n", pa.int32())])
    for name in "people", "known":
        policy = RetryPolicy(0, OnError.FAIL, first_pause=0.05, longest_pause=0.2)
        wanted = keys("one", "ONE", name="name", type=pa.string())
        answer = look_up(wanted, source(shop, schema, name), policy, LookupCache(schema, 0, 60), time.monotonic)
        assert rows(answer.rows) == [("one", 2)]


def test_a_text_that_is_no_uuid_is_not_found(shop: Path) -> None:
    known = "11111111-2222-3333-4444-555555555555"
    run(shop, "CREATE TABLE items (code UUID)", f"INSERT INTO items VALUES ('{known}')")
    schema = pa.schema([("code", pa.string())])
    asked = keys("none", known, name="code", type=pa.string())
    assert rows(source(shop, schema, "items").fetch(asked)) == [(known,)]


@pytest.mark.parametrize("table", ["asked", "stored", "keys"])
def test_a_table_may_have_any_name(shop: Path, table: str) -> None:
    run(shop, f"CREATE TABLE {table} (id BIGINT, name VARCHAR)", f"INSERT INTO {table} VALUES (1, 'one')")
    assert rows(source(shop, SCHEMA, table).fetch(keys(1, 2))) == [(1, "one")]


TYPES: list[tuple[str, pa.DataType, str, Any]] = [
    ("SMALLINT", pa.int16(), "7", 7),
    ("HUGEINT", pa.decimal128(38, 0), "7", Decimal(7)),
    ("UBIGINT", pa.int64(), "9007199254740993", 9007199254740993),
    ("DOUBLE", pa.float64(), "0.30000000000000004", 0.30000000000000004),
    ("DECIMAL(12,2)", pa.decimal128(12, 2), "12.50", Decimal("12.50")),
    ("DECIMAL(12,2)", pa.float64(), "12.50", 12.5),
    ("VARCHAR", pa.string(), "'é'", "é"),
    ("ENUM('a', 'b')", pa.string(), "'b'", "b"),
    ("BOOLEAN", pa.bool_(), "true", True),
    ("DATE", pa.date32(), "'2026-02-28'", dt.date(2026, 2, 28)),
    ("BLOB", pa.binary(), "'\\x00\\xff'", b"\x00\xff"),
    (
        "TIMESTAMPTZ",
        pa.timestamp("us", "UTC"),
        "'2026-02-28 12:00:00.5+02'",
        dt.datetime(2026, 2, 28, 10, 0, 0, 500000, tzinfo=dt.UTC),
    ),
    ("TIMESTAMP", pa.timestamp("us"), "'2026-02-28 12:00:00.5'", dt.datetime(2026, 2, 28, 12, 0, 0, 500000)),  # noqa: DTZ001
]


def test_types_as_values_and_as_keys(shop: Path) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(TYPES))
    values = ", ".join(text for _, _, text, _ in TYPES)
    nulls = ", ".join("NULL" for _ in TYPES)
    run(shop, f"CREATE TABLE kinds ({columns})", f"INSERT INTO kinds VALUES ({values}), ({nulls})")
    schema = pa.schema([(f"c{number}", kind) for number, (_, kind, _, _) in enumerate(TYPES)])
    expected = tuple(value for *_, value in TYPES)
    for field, value in zip(schema, expected, strict=True):
        found = source(shop, schema, "kinds").fetch(keys(value, name=field.name, type=field.type))
        assert found.schema == schema
        assert rows(found) == [expected], field


@pytest.mark.parametrize(
    ("schema", "table", "message"),
    [
        (SCHEMA, "customers", "has no table customers"),
        (pa.schema([("id", pa.int64()), ("nam", pa.string())]), "sales.customers", "no column nam\nhint: did you mean"),
        (pa.schema([("id", pa.string())]), "sales.odd", "cannot be declared as STRING"),
    ],
)
def test_what_is_wrong_is_said_before_the_query_starts(shop: Path, schema: pa.Schema, table: str, message: str) -> None:
    run(shop, "CREATE TABLE sales.odd (id DATE)")
    with pytest.raises(ConnectorError, match=message):
        source(shop, schema, table).check()


def test_values_beyond_their_type_and_files_that_are_none(shop: Path, tmp_path: Path) -> None:
    run(shop, "INSERT INTO sales.customers VALUES (70000, 'x')")
    with pytest.raises(ConnectorError, match=r"column id of table c .*another value of BIGINT"):
        source(shop, pa.schema([("id", pa.int16())])).fetch(pa.table({"id": pa.array([70000])}))
    with pytest.raises(ConnectorError, match="there is no file"):
        source(tmp_path / "none.duckdb").check()
    (tmp_path / "text").write_text("no database " * 1000)
    with pytest.raises(ConnectorError, match="not a valid DuckDB database file"):
        source(tmp_path / "text").check()


def test_views_count_time_in_utc_wherever_they_are_read(shop: Path) -> None:
    run(shop, "CREATE VIEW shown AS SELECT 1::BIGINT AS id, strftime(TIMESTAMPTZ '2026-02-28 12:00:00Z', '%H') AS name")
    code = f"""
import pyarrow as pa
from tests.lookup.tables import SCHEMA, keys, rows
from watersmeet.lookup.duckdb_tables import DuckDbSource
print(rows(DuckDbSource({str(shop)!r}, "shown", SCHEMA).fetch(keys(1))))
"""
    command = [sys.executable, "-c", code]
    settings = {**environment(), "TZ": "Asia/Tokyo"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[(1, '12')]\n"


def test_a_file_that_is_being_written_is_tried_again(shop: Path) -> None:
    with duckdb.connect(shop), pytest.raises(UnavailableError, match="different configuration"):
        source(shop).fetch(keys(1))
    assert source(shop).fetch(keys(1)).num_rows == 1
