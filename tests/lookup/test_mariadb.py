"""Lookups in a real MariaDB server."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.lookup.tables import SCHEMA, keys, rows
from tests.support.mariadb import MariaDb
from watersmeet.errors import ConnectorError
from watersmeet.lookup import connections
from watersmeet.lookup.cache import LookupCache
from watersmeet.lookup.connections import Address
from watersmeet.lookup.jdbc import JdbcSource
from watersmeet.lookup.key_batch import Answer, look_up
from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.lookup.source import UnavailableError

PASSWORD = "${env:MARIADB_TEST_PASSWORD}"


@pytest.fixture
def customers(mariadb: MariaDb) -> MariaDb:
    mariadb.execute(
        "DROP TABLE IF EXISTS customers",
        "CREATE TABLE customers (id bigint, name varchar(20), KEY (id))",
        "INSERT INTO customers VALUES (1, 'one'), (2, 'two'), (2, 'zwei'), (4, NULL)",
    )
    return mariadb


def source(server: MariaDb, schema: pa.Schema = SCHEMA, table: str = "customers", timeout: float = 10.0) -> JdbcSource:
    return JdbcSource(Address(server.url, "root", PASSWORD, timeout), table, schema)


def look(table: JdbcSource, wanted: pa.Table, on_error: OnError = OnError.FAIL, retries: int = 0) -> Answer:
    policy = RetryPolicy(retries, on_error, first_pause=0.05, longest_pause=0.2)
    return look_up(wanted, table, policy, LookupCache(table.schema, 0, 60), time.monotonic)


def test_rows_by_keys_of_one_column_and_of_several(customers: MariaDb) -> None:
    table = source(customers)
    assert rows(look(table, keys(*range(20_000))).rows) == [(1, "one"), (2, "two"), (2, "zwei"), (4, None)]
    wanted = pa.table({"id": [1, 2, 2, 9], "name": ["two", "two", "zwei", "one"]})
    assert rows(table.fetch(wanted)) == [(2, "two"), (2, "zwei")]


@pytest.mark.parametrize("hostile", ["' OR 1=1 --", "'; DROP TABLE people; --", "\\", "\\'", "%s", "%%", ":name", "`"])
def test_keys_are_values_and_nothing_else(mariadb: MariaDb, hostile: str) -> None:
    mariadb.execute("CREATE OR REPLACE TABLE people (name varchar(30), n int)")
    mariadb.execute("INSERT INTO people VALUES ('one', 1), ('two', 2)")
    schema = pa.schema([("name", pa.string()), ("n", pa.int32())])
    asked = keys(hostile, "one", name="name", type=pa.string())
    assert rows(source(mariadb, schema, "people").fetch(asked)) == [("one", 1)]


def test_texts_that_a_collation_takes_for_equal_are_other_keys(mariadb: MariaDb) -> None:
    """The server finds all of them, and the lookup keeps those that were asked for."""
    mariadb.execute("CREATE OR REPLACE TABLE people (name varchar(30) COLLATE utf8mb4_general_ci, n int)")
    mariadb.execute("INSERT INTO people VALUES ('One', 1), ('one', 2), ('one ', 3), ('a\\0b', 4)")
    schema = pa.schema([("name", pa.string()), ("n", pa.int32())])
    table = source(mariadb, schema, "people")
    assert rows(look(table, keys("one", name="name", type=pa.string())).rows) == [("one", 2)]
    assert rows(look(table, keys("ONE", "one ", name="name", type=pa.string())).rows) == [("one ", 3)]
    assert rows(look(table, keys("a\0b", name="name", type=pa.string())).rows) == [("a\0b", 4)]


TYPES: list[tuple[str, pa.DataType, str, Any]] = [
    ("smallint", pa.int16(), "7", 7),
    ("bigint", pa.int64(), "9007199254740993", 9007199254740993),
    ("bigint unsigned", pa.decimal128(20, 0), "18446744073709551615", Decimal(18446744073709551615)),
    ("double", pa.float64(), "0.30000000000000004", 0.30000000000000004),
    ("decimal(12,2)", pa.decimal128(12, 2), "12.50", Decimal("12.50")),
    ("decimal(12,2)", pa.float64(), "12.50", 12.5),
    ("varchar(20)", pa.string(), "'é'", "é"),
    ("varchar(20) CHARACTER SET latin1", pa.string(), "'é'", "é"),
    ("enum('a', 'b')", pa.string(), "'b'", "b"),
    ("boolean", pa.bool_(), "true", True),
    ("boolean", pa.int32(), "1", 1),
    ("date", pa.date32(), "'2026-02-28'", dt.date(2026, 2, 28)),
    ("varbinary(9)", pa.binary(), "x'00ff'", b"\x00\xff"),
    ("timestamp(6)", pa.timestamp("us", "UTC"), "'2026-02-28 12:00:00.5'", None),
    ("datetime(3)", pa.timestamp("us"), "'2026-02-28 12:00:00.5'", dt.datetime(2026, 2, 28, 12, 0, 0, 500000)),  # noqa: DTZ001
]
MOMENT = dt.datetime(2026, 2, 28, 7, 0, 0, 500000, tzinfo=dt.UTC)


def test_types_as_values_and_as_keys(mariadb: MariaDb) -> None:
    columns = ", ".join(f"c{number} {kind} NULL" for number, (kind, *_) in enumerate(TYPES))
    values = ", ".join(text for _, _, text, _ in TYPES)
    nulls = ", ".join("NULL" for _ in TYPES)
    mariadb.execute(f"CREATE OR REPLACE TABLE kinds ({columns}) CHARACTER SET utf8mb4")
    mariadb.execute("SET time_zone = '+05:00'", f"INSERT INTO kinds VALUES ({values}), ({nulls})")
    schema = pa.schema([(f"c{number}", kind) for number, (_, kind, _, _) in enumerate(TYPES)])
    expected = tuple(MOMENT if value is None else value for *_, value in TYPES)
    for field, value in zip(schema, expected, strict=True):
        found = source(mariadb, schema, "kinds").fetch(keys(value, name=field.name, type=field.type))
        assert found.schema == schema
        assert rows(found) == [expected], field


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_no_row_can_have_are_not_found(mariadb: MariaDb, odd: float) -> None:
    mariadb.execute("CREATE OR REPLACE TABLE doubles (d double)", "INSERT INTO doubles VALUES (1.5)")
    schema = pa.schema([("d", pa.float64())])
    assert rows(source(mariadb, schema, "doubles").fetch(keys(odd, 1.5, name="d", type=pa.float64()))) == [(1.5,)]


def test_floats_have_all_their_digits(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE OR REPLACE TABLE singles (id int, f float)", "INSERT INTO singles VALUES (1, 16777215)")
    schema = pa.schema([("id", pa.int32()), ("f", pa.float32())])
    assert rows(source(mariadb, schema, "singles").fetch(keys(1, name="id"))) == [(1, 16777215.0)]


@pytest.mark.parametrize(
    ("columns", "declared", "message"),
    [
        ("id int, d date", pa.date32(), "column d of table odd holds other values, which does not fit"),
        ("id int, d timestamp NULL", pa.timestamp("us", "UTC"), "column d of table odd holds other values"),
        ("id int, d json", pa.int32(), "cannot be declared as INT"),
        ("id int, d bit(3)", pa.int32(), "cannot be declared as INT"),
        ("id int, e int", pa.int32(), "the database has no column d|table odd has no column d"),
    ],
)
def test_values_and_columns_that_do_not_fit(
    mariadb: MariaDb, columns: str, declared: pa.DataType, message: str
) -> None:
    mariadb.execute(f"CREATE OR REPLACE TABLE odd ({columns})")
    if "date" in columns or "timestamp" in columns:
        mariadb.execute("SET sql_mode = ''", "INSERT INTO odd VALUES (1, '0000-00-00')")
    schema = pa.schema([("id", pa.int32()), ("d", declared)])
    with pytest.raises(ConnectorError, match=message):
        source(mariadb, schema, "odd").fetch(keys(1, name="id"))


def test_a_server_that_goes_hangs_and_comes_back(customers: MariaDb) -> None:
    table = source(customers, timeout=1.0)
    assert look(table, keys(1)).rows.num_rows == 1
    with customers.frozen(), pytest.raises(UnavailableError, match="timed out"):
        table.fetch(keys(1))
    customers.stop()
    answer = look(table, keys(1), OnError.NULL, retries=1)
    assert (answer.rows.num_rows, answer.queries) == (0, 2)
    customers.start()
    assert look(table, keys(1)).rows.num_rows == 1
    customers.stop()
    customers.start()
    assert look(table, keys(1)).rows.num_rows == 1


def test_nothing_can_be_written(customers: MariaDb) -> None:
    import sqlalchemy as sa

    with (
        connections.engine_of(source(customers).address).connect() as connection,
        pytest.raises(sa.exc.DBAPIError, match="READ ONLY transaction"),
    ):
        connection.execute(sa.text("DELETE FROM customers"))


def test_a_wrong_login_is_one_sentence(customers: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIADB_TEST_PASSWORD", "verrät-nichts")
    connections.close_all()
    with pytest.raises(ConnectorError, match="Access denied for user 'root'@") as error:
        look(source(customers), keys(1), OnError.RETRY)
    assert "verrät" not in str(error.value)
