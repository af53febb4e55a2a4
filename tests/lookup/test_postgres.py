"""Lookups in a real PostgreSQL server: queries, types, what is wrong, and a server that is down or hangs."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.lookup.tables import SCHEMA, keys, rows
from tests.support.postgres import Postgres
from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.lookup import connections
from watersmeet.lookup.cache import LookupCache
from watersmeet.lookup.connections import Address
from watersmeet.lookup.jdbc import JdbcSource
from watersmeet.lookup.key_batch import Answer, look_up
from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.lookup.source import UnavailableError

PASSWORD = "${env:LOOKUP_TEST_PASSWORD}"
_columns = pa.schema


@pytest.fixture
def customers(postgres: Postgres) -> Iterator[Postgres]:
    postgres.execute(
        "DROP TABLE IF EXISTS customers",
        "CREATE TABLE customers (id bigint, name text)",
        "INSERT INTO customers VALUES (1, 'one'), (2, 'two'), (2, 'zwei'), (4, NULL)",
    )
    yield postgres
    if postgres.process is None:
        postgres.start()


def source(server: Postgres, schema: pa.Schema = SCHEMA, table: str = "customers", **more: Any) -> JdbcSource:
    address = Address(
        server.url, more.get("user", "postgres"), more.get("password", PASSWORD), more.get("timeout", 10.0)
    )
    return JdbcSource(address, table, schema)


def look(table: JdbcSource, *values: int, on_error: OnError = OnError.FAIL, retries: int = 0) -> Answer:
    policy = RetryPolicy(retries, on_error, first_pause=0.05, longest_pause=0.2)
    return look_up(keys(*values), table, policy, LookupCache(SCHEMA, 0, 60), time.monotonic)


def selects(server: Postgres, table: str = "customers") -> list[str]:
    return [
        each for each in server.statements() if each.startswith("SELECT") and f"FROM {table}" in each.replace('"', "")
    ]


def test_one_query_for_all_keys_of_a_batch(customers: Postgres) -> None:
    before = len(selects(customers))
    answer = look(source(customers), *range(1000))
    assert rows(answer.rows) == [(1, "one"), (2, "two"), (2, "zwei"), (4, None)]
    assert len(selects(customers)) - before == 1


def test_more_keys_than_a_query_may_have_parameters(customers: Postgres) -> None:
    before = len(selects(customers))
    assert look(source(customers), *range(100_000)).rows.num_rows == 4
    assert len(selects(customers)) - before == 1


def test_keys_of_several_columns(customers: Postgres) -> None:
    wanted = pa.table({"id": [1, 2, 2, 9], "name": ["two", "two", "zwei", "one"]})
    assert rows(source(customers).fetch(wanted)) == [(2, "two"), (2, "zwei")]


def test_names_are_quoted_and_found_whatever_their_case(postgres: Postgres) -> None:
    postgres.execute(
        'CREATE SCHEMA IF NOT EXISTS "Shop"',
        'DROP TABLE IF EXISTS "Shop"."order"',
        'CREATE TABLE "Shop"."order" ("ID" bigint, "a ""b"" %s" text)',
        """INSERT INTO "Shop"."order" VALUES (1, 'x')""",
    )
    schema = pa.schema([("id", pa.int64()), ('a "b" %s', pa.string())])
    assert rows(source(postgres, schema, "Shop.order").fetch(keys(1))) == [(1, "x")]


@pytest.mark.parametrize(
    "hostile", ["' OR 1=1 --", "'; DROP TABLE people; --", "{one,two}", '","', "\\", "%s", "$1", "a\0b", ":name", ""]
)
def test_keys_are_values_and_nothing_else(postgres: Postgres, hostile: str) -> None:
    postgres.execute("CREATE TABLE IF NOT EXISTS people (name text, n int)")
    postgres.execute("DELETE FROM people", "INSERT INTO people VALUES ('one', 1), ('two', 2), ('one,two', 3)")
    schema = pa.schema([("name", pa.string()), ("n", pa.int32())])
    asked = keys(hostile, "one", name="name", type=pa.string())
    assert rows(source(postgres, schema, "people").fetch(asked)) == [("one", 1)]
    both = pa.table({"name": [hostile, "one"], "n": pa.array([1, 1], pa.int32())})
    assert rows(source(postgres, schema, "people").fetch(both)) == [("one", 1)]


UUID = "8d6f1a9e-0c8e-4a57-9b53-0d6c1c1e7a11"
TYPES: list[tuple[str, pa.DataType, str, Any]] = [
    ("smallint", pa.int16(), "7", 7),
    ("integer", pa.int64(), "7", 7),
    ("bigint", pa.int64(), "9007199254740993", 9007199254740993),
    ("double precision", pa.float64(), "0.5", 0.5),
    ("numeric(12,2)", pa.decimal128(12, 2), "12.50", Decimal("12.50")),
    ("numeric(12,2)", pa.float64(), "12.50", 12.5),
    ("text", pa.string(), "'é'", "é"),
    ("varchar(5)", pa.string(), "'abc'", "abc"),
    ("uuid", pa.string(), f"'{UUID}'", UUID),
    ("boolean", pa.bool_(), "true", True),
    ("date", pa.date32(), "'2026-02-28'", dt.date(2026, 2, 28)),
    ("bytea", pa.binary(), r"'\x00ff'", b"\x00\xff"),
    (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        "'2026-02-28 12:00:00.123456+02'",
        dt.datetime(2026, 2, 28, 10, 0, 0, 123456, tzinfo=dt.UTC),
    ),
    ("timestamp", pa.timestamp("us"), "'2026-02-28 12:00:00'", dt.datetime(2026, 2, 28, 12)),  # noqa: DTZ001
]


def test_types_as_values_and_as_keys(postgres: Postgres) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(TYPES))
    values = ", ".join(text for _, _, text, _ in TYPES)
    nulls = ", ".join("NULL" for _ in TYPES)
    postgres.execute("DROP TABLE IF EXISTS kinds", f"CREATE TABLE kinds ({columns})")
    postgres.execute(f"INSERT INTO kinds VALUES ({values}), ({nulls})")
    schema = pa.schema([(f"c{number}", kind) for number, (_, kind, _, _) in enumerate(TYPES)])
    expected = tuple(value for *_, value in TYPES)
    for field, value in zip(schema, expected, strict=True):
        found = source(postgres, schema, "kinds").fetch(keys(value, name=field.name, type=field.type))
        assert found.schema == schema
        assert rows(found) == [expected], field


def test_keys_that_the_column_cannot_hold_are_not_found(postgres: Postgres) -> None:
    postgres.execute("DROP TABLE IF EXISTS small", "CREATE TABLE small (n smallint, u uuid)")
    postgres.execute(f"INSERT INTO small VALUES (1, '{UUID}')")
    small = source(postgres, pa.schema([("n", pa.int64())]), "small")
    assert rows(small.fetch(keys(1, 1 << 40, name="n"))) == [(1,)]
    uuids = source(postgres, pa.schema([("u", pa.string())]), "small")
    assert rows(uuids.fetch(keys(UUID, "no uuid", UUID.upper(), name="u", type=pa.string()))) == [(UUID,)]


def test_an_index_serves_the_keys(customers: Postgres) -> None:
    customers.execute(
        "CREATE TABLE IF NOT EXISTS big AS SELECT i::int AS id, 'n' || i AS name FROM generate_series(1, 50000) i"
    )
    customers.execute("CREATE UNIQUE INDEX IF NOT EXISTS big_id ON big (id)", "ANALYZE big")
    scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'big_id'"
    before = customers.execute(scans)[0][0]
    assert source(customers, table="big").fetch(keys(5, 500)).num_rows == 2
    connections.close_all()  # a session reports its statistics when it ends
    deadline = time.monotonic() + 10
    while customers.execute(scans)[0][0] == before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert customers.execute(scans)[0][0] > before


# -- what is wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "table", "message"),
    [
        (SCHEMA, "custommers", "the database has no table custommers"),
        (SCHEMA, "shop.customers", "the database has no table shop.customers"),
        (_columns([("id", pa.int64()), ("nam", pa.string())]), "customers", "no column nam\nhint: did you mean name"),
        (
            _columns([("id", pa.int64()), ("name", pa.int32())]),
            "customers",
            "name .* is TEXT: it cannot be declared as",
        ),
        (_columns([("id", pa.string())]), "customers", "id .* is BIGINT: it cannot be declared as STRING"),
    ],
)
def test_a_table_or_column_that_is_not_there(customers: Postgres, schema: pa.Schema, table: str, message: str) -> None:
    with pytest.raises(ConnectorError, match=message):
        source(customers, schema, table).fetch(keys(1))


def test_a_value_too_large_for_its_declared_type(customers: Postgres) -> None:
    customers.execute("DROP TABLE IF EXISTS wide", "CREATE TABLE wide (id bigint)", "INSERT INTO wide VALUES (70000)")
    with pytest.raises(ConnectorError, match="column id of table wide holds other values, which"):
        source(customers, pa.schema([("id", pa.int16())]), "wide").fetch(keys(70000))


def test_a_wrong_password_is_one_sentence_without_it(customers: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKUP_TEST_PASSWORD", "verrät-nichts")
    table = source(customers)
    with pytest.raises(ConnectorError, match="password authentication failed") as error:
        look(table, 1, on_error=OnError.RETRY)
    assert "verrät" not in str(error.value)
    assert "verrät" not in repr(table)
    assert "\n" not in error.value.message


def test_a_password_that_leads_nowhere(customers: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOKUP_TEST_PASSWORD")
    with pytest.raises(ConfigError, match="the environment has no variable LOOKUP_TEST_PASSWORD"):
        look(source(customers), 1)


def test_a_user_without_the_right_to_read(customers: Postgres) -> None:
    customers.execute("DROP ROLE IF EXISTS guest", f"CREATE ROLE guest LOGIN PASSWORD '{customers.password}'")
    with pytest.raises(ConnectorError, match="permission denied"):
        look(source(customers, user="guest"), 1, on_error=OnError.RETRY)


def test_a_table_that_changed_after_the_first_query(customers: Postgres) -> None:
    table = source(customers)
    look(table, 1)
    customers.execute("ALTER TABLE customers RENAME COLUMN name TO called")
    with pytest.raises(ConnectorError, match=r"column .*name.* does not exist"):
        look(table, 1, on_error=OnError.NULL)
    customers.execute("ALTER TABLE customers RENAME COLUMN called TO name")
    assert look(table, 1).rows.num_rows == 1


# -- a server that is down, or hangs -----------------------------------------------------------------------------------


def test_a_server_that_was_restarted_is_asked_over_a_new_connection(customers: Postgres) -> None:
    table = source(customers)
    look(table, 1)
    customers.stop()
    customers.start()
    assert look(table, 1).rows.num_rows == 1


def test_down_with_fail_then_up_again(customers: Postgres) -> None:
    customers.stop()
    with pytest.raises(ConnectorError, match=r"failed after 2 attempts: .*refused"):
        look(source(customers), 1, retries=1)
    customers.start()
    assert look(source(customers), 1).rows.num_rows == 1


def test_down_with_null(customers: Postgres) -> None:
    customers.stop()
    answer = look(source(customers), 1, 2, on_error=OnError.NULL, retries=1)
    assert (answer.rows.num_rows, rows(answer.failed), answer.queries) == (0, [(1,), (2,)], 2)


def test_down_with_retry_until_the_server_is_back(customers: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0
    fetch = JdbcSource.fetch

    def counted(table: JdbcSource, wanted: pa.Table) -> pa.Table:
        nonlocal attempts
        attempts += 1
        if attempts == 4:
            customers.start()
        return fetch(table, wanted)

    customers.stop()
    monkeypatch.setattr(JdbcSource, "fetch", counted)
    assert look(source(customers), 1, on_error=OnError.RETRY).rows.num_rows == 1
    assert attempts >= 4


def test_a_locked_table_runs_into_the_time_out(customers: Postgres) -> None:
    address = {"host": "127.0.0.1", "port": customers.port, "user": "postgres", "password": customers.password}
    look(source(customers, timeout=0.3), 1)
    with psycopg.connect(**address, dbname="postgres") as other:  # type: ignore[arg-type]
        other.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")
        begin = time.monotonic()
        with pytest.raises(ConnectorError, match="statement timeout"):
            look(source(customers, timeout=0.3), 1)
        assert time.monotonic() - begin < 2
    assert look(source(customers, timeout=0.3), 1).rows.num_rows == 1


def test_a_server_that_hangs_is_left(customers: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_GRACE_SECONDS", 0.2)
    table = source(customers, timeout=0.3)
    look(table, 1)
    with customers.frozen():
        begin = time.monotonic()
        with pytest.raises(UnavailableError, match=r"no answer within 0\.3 seconds"):
            table.fetch(keys(1))
        assert time.monotonic() - begin < 2
    assert look(table, 1).rows.num_rows == 1


def test_connections_are_kept_and_closed_when_idle(customers: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_connections() -> int:
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'watersmeet'"
        return int(customers.execute(count)[0][0])

    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.5)
    table = source(customers)
    look(table, 1)
    look(table, 2)
    assert open_connections() == 1
    deadline = time.monotonic() + 10
    while open_connections() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert open_connections() == 0
    assert look(table, 1).rows.num_rows == 1


def test_nothing_can_be_written(customers: Postgres) -> None:
    import sqlalchemy as sa

    with (
        connections.engine_of(source(customers).address).connect() as connection,
        pytest.raises(sa.exc.DBAPIError, match="read-only"),
    ):
        connection.execute(sa.text("DELETE FROM customers"))


def test_another_database_without_code_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    import sqlite3

    path = tmp_path_factory.mktemp("sqlite") / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE customers (id INTEGER, name TEXT)")
    connection.executemany("INSERT INTO customers VALUES (?, ?)", [(1, "one"), (2, "two")])
    connection.commit()
    connection.close()
    table = JdbcSource(Address(f"jdbc:sqlite:{path}", None, None, 10.0), "customers", SCHEMA)
    assert rows(look(table, *range(20_000)).rows) == [(1, "one"), (2, "two")]
    assert rows(table.fetch(pa.table({"id": [1, 2], "name": ["one", "zwei"]}))) == [(1, "one")]
    connections.close_all()
