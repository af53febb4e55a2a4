"""Tables of a database as sinks: a real PostgreSQL server, and SQLite."""

from __future__ import annotations

import datetime as dt
import sqlite3
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.connectors.database_tables import LATER, ORDERS, batch, table_of, write
from tests.support.postgres import Postgres
from tests.support.relay import relay
from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.jdbc.sink import open_table
from watersmeet.errors import ConnectorError, SinkOutageError
from watersmeet.lookup import connections


def stream(server: Postgres, columns: str = ORDERS, key: str = "id", **options: str) -> StreamDef:
    login = {"url": server.url, "user": "postgres", "password": "${env:LOOKUP_TEST_PASSWORD}"}
    return table_of(columns, key, **{**login, **options})


@pytest.fixture
def orders(postgres: Postgres) -> Postgres:
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id bigint PRIMARY KEY, status varchar(9), price double precision, seen int DEFAULT 1)",
        "INSERT INTO orders VALUES (9, 'theirs', 1.5)",
    )
    return postgres


def found(server: Postgres) -> list[tuple[Any, ...]]:
    return server.execute("SELECT id, status, price, seen FROM orders ORDER BY id")


def test_rows_are_inserted_replaced_and_deleted_by_key(orders: Postgres) -> None:
    sink = open_table(stream(orders))
    write(sink, (1, "open", 2.0, 1), (2, None, None, 1), (3, "open", 0.0, 1), (4, "x", 1.0, 1), (4, "x", 1.0, -1))
    assert found(orders) == [(1, "open", 2.0, 1), (2, None, None, 1), (3, "open", 0.0, 1), (9, "theirs", 1.5, 1)]
    orders.execute("UPDATE orders SET seen = 5")
    write(sink, (1, "open", 2.0, -1), (1, "paid", 2.0, 1), (3, "open", 0.0, -1), (5, "x", 1.0, -1))
    assert found(orders) == [(1, "paid", 2.0, 5), (2, None, None, 5), (9, "theirs", 1.5, 5)]
    write(sink)


def test_rows_without_a_delta_are_upserts(orders: Postgres) -> None:
    sink = open_table(stream(orders))
    sink.write(batch(sink.stream, (9, "ours", 0.5, 1)).drop_columns("_tp_delta"), 0)
    assert found(orders) == [(9, "ours", 0.5, 1)]


def test_a_batch_is_there_whole_or_not_at_all(orders: Postgres) -> None:
    sink = open_table(stream(orders))
    rows = [(i, "good", 1.0, 1) for i in range(10, 5010)]
    with pytest.raises(ConnectorError) as raised:
        write(sink, *rows, (5010, "much too long", 1.0, 1), (9, "theirs", 1.5, -1))
    said = "batch 7 could not be written to table orders: value too long for type character varying(9)"
    assert str(raised.value) == said + LATER
    assert found(orders) == [(9, "theirs", 1.5, 1)], "and no text is cut off"
    write(sink, *rows)
    assert len(found(orders)) == 5001


def test_several_rows_of_a_key_are_refused_before_anything_is_written(orders: Postgres) -> None:
    with pytest.raises(ConnectorError, match="the query emits several rows for one key"):
        write(open_table(stream(orders)), (1, "a", 1.0, 1), (2, "a", 1.0, 1), (2, "b", 1.0, 1))
    assert len(found(orders)) == 1


def test_names_are_quoted_and_found_whatever_their_case(postgres: Postgres) -> None:
    postgres.execute(
        'CREATE SCHEMA IF NOT EXISTS "Shop"',
        'DROP TABLE IF EXISTS "Shop"."order"',
        """CREATE TABLE "Shop"."order" ("ID" int, "a 'b' %s;(x)" text, "from" text, PRIMARY KEY ("from", "ID"))""",
    )
    target = stream(postgres, "id BIGINT, a 'b' %s;(x) STRING, from STRING", "id, from", table="Shop.order")
    sink = open_table(target)
    write(sink, (1, "'; DROP TABLE x; --", "%s", 1), (1, ":c0", "$1", 1), (2, "\\", "", 1))
    write(sink, (1, "'; DROP TABLE x; --", "%s", -1))
    assert postgres.execute('SELECT * FROM "Shop"."order" ORDER BY 1') == [(1, ":c0", "$1"), (2, "\\", "")]


def test_a_table_of_nothing_but_its_key(postgres: Postgres) -> None:
    postgres.execute("DROP TABLE IF EXISTS seen", "CREATE TABLE seen (a int, b text)")
    postgres.execute("CREATE UNIQUE INDEX ON seen (b, a)")
    sink = open_table(stream(postgres, "a INT, b STRING", "a, b", table="seen"))
    write(sink, (1, "x", 1), (1, "y", 1))
    write(sink, (1, "x", 1), (1, "y", -1))
    assert postgres.execute("SELECT * FROM seen") == [(1, "x")]


UUID = "8d6f1a9e-0c8e-4a57-9b53-0d6c1c1e7a11"
MOMENT = dt.datetime(2026, 2, 28, 10, 0, 0, 123456, tzinfo=dt.UTC)
TYPES: list[tuple[str, str, Any, Any]] = [
    ("smallint", "TINYINT", 7, 8),
    ("integer", "BIGINT", 7, -8),
    ("bigint", "BIGINT", 9007199254740993, 9007199254740992),
    ("double precision", "DOUBLE", 0.30000000000000004, float("nan")),
    ("real", "FLOAT", 1.5, 2.5),
    ("numeric(12,2)", "DECIMAL(12:2)", Decimal("12.50"), Decimal("-0.01")),
    ("numeric", "DECIMAL(38:9)", Decimal("0.000000001"), Decimal("99999999999999999999999999999.999999999")),
    ("text", "STRING", "é'%s\\", ""),
    ("char(5)", "STRING", "abc  ", "ab   "),
    ("uuid", "STRING", UUID, UUID.replace("8", "9")),
    ("boolean", "BOOLEAN", True, False),
    ("date", "DATE", dt.date(2026, 2, 28), dt.date(1, 1, 1)),
    ("bytea", "BINARY", b"\x00\xff", b""),
    ("timestamptz", "TIMESTAMP", MOMENT, MOMENT + dt.timedelta(microseconds=1)),
    ("timestamp", "TIMESTAMP_NTZ", MOMENT.replace(tzinfo=None), dt.datetime(1900, 1, 1)),  # noqa: DTZ001
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "declared", "one", "other"), TYPES, ids=[f"{kind} {name}" for kind, name, *_ in TYPES]
)
def test_values_of_every_type_as_values_and_in_the_key(
    postgres: Postgres, kind: str, declared: str, one: Any, other: Any
) -> None:
    postgres.execute("DROP TABLE IF EXISTS kinds", f"CREATE TABLE kinds (k {kind} PRIMARY KEY, v {kind})")
    sink = open_table(stream(postgres, f"k {declared}, v {declared}", "k", table="kinds"))
    write(sink, (one, other, 1), (other, None, 1))
    stored = postgres.execute("SELECT * FROM kinds ORDER BY v NULLS LAST")
    expected = [(one, other), (other, None)]
    assert [[str(value) for value in row] for row in stored] == [[str(value) for value in row] for row in expected]
    write(sink, (one, other, -1), (one, one, 1), (other, None, -1))
    ((key, value),) = postgres.execute("SELECT * FROM kinds")
    assert str(key) == str(value) == str(one)


def test_a_number_beyond_its_column_is_refused(postgres: Postgres) -> None:
    postgres.execute("DROP TABLE IF EXISTS small, texts", "CREATE TABLE small (id int PRIMARY KEY, u uuid)")
    postgres.execute("CREATE TABLE texts (t text PRIMARY KEY)")
    sink = open_table(stream(postgres, "id BIGINT, u STRING", table="small"))
    with pytest.raises(ConnectorError, match="batch 7 could not be written to table small: integer out of range"):
        write(sink, (1 << 40, None, 1))
    with pytest.raises(ConnectorError, match="no UUID in its usual form: u = 'no'"):
        write(sink, (1, "no", 1))
    with pytest.raises(ConnectorError, match="NUL"):
        write(open_table(stream(postgres, "t STRING", "t", table="texts")), ("a\0", 1))


# -- what does not fit is reported before the query starts -----------------------------------------------------------


NO_TABLE = "the database has no table order for results to be written to\nhint: create it first"
NO_COLUMN = "no column state, which results declares\nhint: did you mean status"
NO_KEY = """table orders has no primary key or unique index over (id, status), which upserts need
hint: ALTER TABLE orders ADD PRIMARY KEY (id, status), or declare the key that the table has"""


@pytest.mark.parametrize(
    ("columns", "key", "table", "message"),
    [
        (ORDERS, "id", "order", NO_TABLE),
        (ORDERS, "id", "shop.orders", "the database has no table shop.orders"),
        ("id BIGINT, state STRING", "id", "orders", NO_COLUMN),
        ("id STRING", "id", "orders", "column id of table orders is BIGINT: it does not take every string"),
        ("id BIGINT, seen DOUBLE", "id", "orders", "seen of table orders is INTEGER: it does not take every double"),
        ("id BIGINT, seen DECIMAL(5:1)", "id", "orders", "seen of table orders is INTEGER: it does not take every dec"),
        ("id INT, n DECIMAL(9:3)", "id", "narrow", "n of table narrow is NUMERIC(12, 2): it does not take every dec"),
        ("id INT, n DOUBLE", "id", "narrow", "n of table narrow is NUMERIC(12, 2): it does not take every double"),
        ("id INT, r FLOAT, m DOUBLE", "id", "narrow", "m of table narrow is NUMERIC: it does not take every double"),
        ("id INT, r DOUBLE", "id", "narrow", "column r of table narrow is REAL: it does not take every double"),
        ("id INT, t TIMESTAMP", "id", "narrow", "column t of table narrow is TIMESTAMP: it does not take"),
        ("id INT, t TIMESTAMP_NTZ", "id", "narrow", "column t of table narrow is TIMESTAMP: it does not take"),
        (ORDERS, "id, status", "orders", NO_KEY),
        ("id INT, n DECIMAL(9:2)", "n", "narrow", "no primary key or unique index over (n)"),
    ],
)
def test_a_table_that_does_not_fit(orders: Postgres, columns: str, key: str, table: str, message: str) -> None:
    orders.execute(
        "DROP TABLE IF EXISTS narrow",
        "CREATE TABLE narrow (id int PRIMARY KEY, n numeric(12, 2), m numeric, r real, t timestamp(3))",
        "CREATE UNIQUE INDEX ON narrow (n) WHERE id > 0",
    )
    with pytest.raises(ConnectorError) as raised:
        open_table(stream(orders, columns, key, table=table))
    assert message in str(raised.value)


def test_a_wrong_password_is_one_sentence_without_it(orders: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOKUP_TEST_PASSWORD", "verrät-nichts")
    with pytest.raises(ConnectorError, match=r"table orders cannot be written to: .*password authentication") as error:
        open_table(stream(orders))
    assert "verrät" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_user_without_the_right_to_write(orders: Postgres) -> None:
    orders.execute(
        "DROP OWNED BY reader; DROP ROLE reader"
        if orders.execute("SELECT 1 FROM pg_roles WHERE rolname = 'reader'")
        else "SELECT 1",
        f"CREATE ROLE reader LOGIN PASSWORD '{orders.password}'",
        "GRANT SELECT ON orders TO reader",
    )
    sink = open_table(stream(orders, user="reader"))
    with pytest.raises(ConnectorError) as raised:
        write(sink, (1, "x", 1.0, 1))
    said = "batch 7 could not be written to table orders: permission denied for table orders"
    assert str(raised.value) == said + LATER


# -- a server that is down, or hangs -----------------------------------------------------------------------------------


def test_a_server_that_goes_and_comes_back(orders: Postgres) -> None:
    sink = open_table(stream(orders))
    orders.stop()
    with pytest.raises(ConnectorError, match=r"batch 7 could not be written to table orders: .*refused"):
        write(sink, (1, "x", 1.0, 1))
    with pytest.raises(ConnectorError, match=r"table orders cannot be written to: .*refused"):
        open_table(stream(orders))
    orders.start()
    write(sink, (1, "x", 1.0, 1))
    orders.stop()
    orders.start()
    write(sink, (2, "x", 1.0, 1))  # over a new connection: the one before was cut
    assert len(found(orders)) == 3


def test_a_locked_table_and_a_server_that_hangs(orders: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_GRACE_SECONDS", 0.2)
    sink = open_table(stream(orders, timeout="0.3 s"))
    address = {"host": "127.0.0.1", "port": orders.port, "user": "postgres", "password": orders.password}
    with psycopg.connect(**address, dbname="postgres") as other:  # type: ignore[arg-type]
        other.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ConnectorError, match="canceling statement due to statement timeout"):
            write(sink, (1, "x", 1.0, 1))
    with orders.frozen():
        begin = time.monotonic()
        with pytest.raises(ConnectorError, match=r"the database did not answer within 0\.3 seconds"):
            write(sink, (1, "x", 1.0, 1))
        assert time.monotonic() - begin < 5
    write(sink, (1, "x", 1.0, 1))
    assert len(found(orders)) == 2


# -- SQLite ------------------------------------------------------------------------------------------------------------


def test_sqlite(postgres: Postgres, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE orders (id INTEGER PRIMARY KEY, "a b" TEXT, at TIMESTAMP, d DECIMAL(9, 2))')
    connection.close()
    url = f"jdbc:sqlite:{path}"
    sink = open_table(stream(postgres, "id INT, a b STRING, at TIMESTAMP_NTZ", url=url))
    moment = MOMENT.replace(tzinfo=None)
    write(sink, (1, "x", moment, 1), (2, None, None, 1), (3, "z", moment, 1))
    write(sink, (1, "x", moment, -1), (1, "y", moment, 1), (3, "z", moment, -1))
    with pytest.raises(ConnectorError, match="column d of table orders is DECIMAL"):
        open_table(stream(postgres, "id INT, d DECIMAL(9:2)", url=url))  # SQLite would make a float of it
    connections.close_all()
    connection = sqlite3.connect(path)
    assert connection.execute('SELECT id, "a b", at FROM orders').fetchall() == [
        (1, "y", "2026-02-28 10:00:00.123456"),
        (2, None, None),
    ]
    connection.close()


# -- an answer that is lost --------------------------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_is_made_again_and_changes_nothing(orders: Postgres) -> None:
    with relay(orders.port) as line:
        sink = open_table(stream(orders, url=f"jdbc:postgresql://127.0.0.1:{line.port()}/postgres"))
        rows = [(1, "open", 2.0, 1), (9, "theirs", 1.5, -1)]
        line.lose_answer_to(b"COMMIT")
        sink.write(batch(sink.stream, *rows), 7)
        assert line.has_lost()
        assert found(orders) == [(1, "open", 2.0, 1)]
        line.close()
        with pytest.raises(SinkOutageError) as raised:
            sink.write(batch(sink.stream, *rows), 8)
        assert raised.value.waiting == f"waiting for PostgreSQL at 127.0.0.1:{line.port()}: Connection refused"
        line.open()
        sink.write(batch(sink.stream, *rows), 8)
    assert found(orders) == [(1, "open", 2.0, 1)]


def test_a_deadlock_is_tried_again_at_once(orders: Postgres) -> None:
    """The trigger ends the first transaction as PostgreSQL ends one of two that wait for each other."""
    orders.execute(
        "CREATE SEQUENCE IF NOT EXISTS attempts",
        "CREATE OR REPLACE FUNCTION deadlock() RETURNS trigger AS $$ BEGIN IF nextval('attempts') = 1 THEN "
        "RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER once BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION deadlock()",
    )
    sink = open_table(stream(orders))
    sink.write(batch(sink.stream, (1, "open", 2.0, 1)), 7)
    assert orders.execute("SELECT last_value FROM attempts") == [(2,)]
    orders.execute("DROP TABLE orders", "DROP SEQUENCE attempts")
