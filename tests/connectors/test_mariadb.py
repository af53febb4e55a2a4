"""Tables of MariaDB as sinks: a real server."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.connectors.database_tables import LATER, ORDERS, batch, table_of, write
from tests.support.mariadb import MariaDb
from tests.support.relay import relay
from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.jdbc.sink import open_table
from watersmeet.errors import ConfigError, ConnectorError, SinkOutageError
from watersmeet.lookup.connections import close_all


def stream(server: MariaDb, columns: str = ORDERS, key: str = "id", **options: str) -> StreamDef:
    login = {"url": server.url, "user": "root", "password": "${env:MARIADB_TEST_PASSWORD}"}
    return table_of(columns, key, **{**login, **options})


@pytest.fixture
def orders(mariadb: MariaDb) -> MariaDb:
    mariadb.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id bigint PRIMARY KEY, status varchar(9), price double, seen int DEFAULT 1)",
        "INSERT INTO orders VALUES (9, 'theirs', 1.5, 1)",
    )
    return mariadb


def found(server: MariaDb) -> list[tuple[Any, ...]]:
    return server.execute("SELECT id, status, price, seen FROM orders ORDER BY id")


@contextlib.contextmanager
def session(server: MariaDb) -> Iterator[pymysql.connections.Connection[Any]]:
    with contextlib.closing(
        pymysql.connect(host="127.0.0.1", port=server.port, user="root", password=server.password, database="shop")
    ) as connection:
        yield connection


def test_rows_are_inserted_replaced_and_deleted_by_key(orders: MariaDb) -> None:
    sink = open_table(stream(orders))
    write(sink, (1, "open", 2.0, 1), (2, None, None, 1), (3, "open", 0.0, 1), (4, "x", 1.0, 1), (4, "x", 1.0, -1))
    assert found(orders) == [(1, "open", 2.0, 1), (2, None, None, 1), (3, "open", 0.0, 1), (9, "theirs", 1.5, 1)]
    orders.execute("UPDATE orders SET seen = 5")
    write(sink, (1, "open", 2.0, -1), (1, "paid", 2.0, 1), (3, "open", 0.0, -1), (5, "x", 1.0, -1))
    assert found(orders) == [(1, "paid", 2.0, 5), (2, None, None, 5), (9, "theirs", 1.5, 5)]
    write(sink)


def test_a_batch_is_there_whole_or_not_at_all(orders: MariaDb) -> None:
    sink = open_table(stream(orders))
    rows = [(i, "good", 1.0, 1) for i in range(10, 5010)]
    with pytest.raises(ConnectorError) as raised:
        write(sink, *rows, (5010, "much too long", 1.0, 1), (9, "theirs", 1.5, -1))
    said = "batch 7 could not be written to table orders: Data too long for column 'status' at row"
    assert str(raised.value).startswith(said)
    assert str(raised.value).endswith(LATER)
    assert found(orders) == [(9, "theirs", 1.5, 1)], "and no text is cut off"
    write(sink, *rows)
    assert len(found(orders)) == 5001


def test_a_server_that_cuts_values_is_told_not_to(orders: MariaDb) -> None:
    orders.execute("SET GLOBAL sql_mode = ''")
    try:
        sink = open_table(stream(orders, "id BIGINT, status STRING, seen BIGINT"))
        with pytest.raises(ConnectorError, match="Data too long for column 'status'"):
            write(sink, (1, "much too long", 1, 1))
        with pytest.raises(ConnectorError, match="Out of range value for column 'seen'"):
            write(sink, (1, "x", 1 << 40, 1))
    finally:
        orders.execute("SET GLOBAL sql_mode = DEFAULT")
    assert len(found(orders)) == 1


def test_names_are_quoted_and_found_whatever_their_case(mariadb: MariaDb) -> None:
    mariadb.execute(
        "CREATE DATABASE IF NOT EXISTS `Other shop`",
        "DROP TABLE IF EXISTS `Other shop`.`order`",
        "CREATE TABLE `Other shop`.`order` (`ID` int, `a 'b' :c0;(x)` varchar(40) COLLATE utf8mb4_bin, "
        "`from` varchar(40) COLLATE utf8mb4_bin, PRIMARY KEY (`from`, `ID`))",
    )
    target = stream(mariadb, "id BIGINT, a 'b' :c0;(x) STRING, from STRING", "id, from", table="Other shop.order")
    sink = open_table(target)
    write(sink, (1, "'; DROP TABLE x; --", "%s", 1), (1, ":c0", "$1", 1), (2, '\\"\n', "", 1))
    write(sink, (1, "'; DROP TABLE x; --", "%s", -1))
    assert mariadb.execute("SELECT * FROM `Other shop`.`order` ORDER BY 1") == [(1, ":c0", "$1"), (2, '\\"\n', "")]


def test_a_table_of_nothing_but_its_key(mariadb: MariaDb) -> None:
    mariadb.execute("DROP TABLE IF EXISTS seen", "CREATE TABLE seen (a int, b varbinary(9), UNIQUE (b, a))")
    sink = open_table(stream(mariadb, "a INT, b BINARY", "a, b", table="seen"))
    write(sink, (1, b"x", 1), (1, b"X", 1), (1, b"x ", 1))
    write(sink, (1, b"x", 1), (1, b"X", -1))
    assert mariadb.execute("SELECT * FROM seen ORDER BY b") == [(1, b"x"), (1, b"x ")]


MOMENT = dt.datetime(2026, 2, 28, 10, 0, 0, 123456, tzinfo=dt.UTC)
LOCAL = MOMENT.replace(tzinfo=None)
TYPES: list[tuple[str, str, Any, Any]] = [
    ("tinyint", "TINYINT", 7, -8),
    ("int unsigned", "BIGINT", 7, 4294967295),
    ("bigint", "BIGINT", 9007199254740993, 9007199254740992),
    ("bigint unsigned", "DECIMAL(20:0)", Decimal(7), Decimal(18446744073709551615)),
    ("double", "DOUBLE", 0.30000000000000004, -1.7976931348623157e308),
    ("decimal(12,2)", "DECIMAL(12:2)", Decimal("12.50"), Decimal("-0.01")),
    ("decimal(38,9)", "DECIMAL(38:9)", Decimal("0.000000001"), Decimal("99999999999999999999999999999.999999999")),
    ("varchar(20) COLLATE utf8mb4_bin", "STRING", "é'%s\\", ""),
    ("varchar(20) COLLATE utf8mb4_nopad_bin", "STRING", "a", "a "),
    ("boolean", "BOOLEAN", True, False),
    ("date", "DATE", dt.date(2026, 2, 28), dt.date(1000, 1, 1)),
    ("varbinary(9)", "BINARY", b"\x00\xff", b""),
    ("timestamp(6)", "TIMESTAMP", MOMENT, MOMENT + dt.timedelta(microseconds=1)),
    ("datetime(6)", "TIMESTAMP_NTZ", LOCAL, dt.datetime(1900, 1, 1)),  # noqa: DTZ001
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "declared", "one", "other"), TYPES, ids=[f"{kind} {name}" for kind, name, *_ in TYPES]
)
def test_values_of_every_type_as_values_and_in_the_key(
    mariadb: MariaDb, kind: str, declared: str, one: Any, other: Any
) -> None:
    null = "NULL" if kind.startswith("timestamp") else ""
    mariadb.execute("SET GLOBAL time_zone = '+05:00'", "DROP TABLE IF EXISTS kinds")
    try:
        mariadb.execute(f"CREATE TABLE kinds (k {kind} PRIMARY KEY, v {kind} {null})")
        sink = open_table(stream(mariadb, f"k {declared}, v {declared}", "k", table="kinds"))
        write(sink, (one, other, 1), (other, None, 1))
        expected = [(one, other), (other, None)]
        shown = "SELECT * FROM kinds ORDER BY v IS NULL"
        if "TIMESTAMP" in declared:
            expected = [tuple(value and value.replace(tzinfo=None) for value in row) for row in expected]
        assert mariadb.execute("SET time_zone = '+00:00'", shown) == expected
        write(sink, (one, other, -1), (one, one, 1), (other, None, -1))
        ((key, value),) = mariadb.execute("SET time_zone = '+00:00'", shown)
        assert key == value == expected[0][0]
    finally:
        mariadb.execute("SET GLOBAL time_zone = SYSTEM")


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        ("float", "DOUBLE"),
        ("double(9,2)", "DOUBLE"),
        ("decimal(9,2)", "DOUBLE"),
        ("decimal(9,2)", "DECIMAL(9:3)"),
        ("int", "DECIMAL(9:3)"),
        ("timestamp(3)", "TIMESTAMP"),
        ("datetime", "TIMESTAMP_NTZ"),
        ("datetime(6)", "TIMESTAMP"),
        ("timestamp(6)", "TIMESTAMP_NTZ"),
        ("binary(9)", "BINARY"),
        ("enum('a', 'b')", "STRING"),
        ("set('a', 'b')", "STRING"),
        ("tinyint(2)", "BOOLEAN"),
        ("int", "STRING"),
        ("json", "BIGINT"),
    ],
)
def test_a_column_that_would_change_values_is_refused(mariadb: MariaDb, kind: str, declared: str) -> None:
    mariadb.execute("DROP TABLE IF EXISTS narrow", f"CREATE TABLE narrow (id int PRIMARY KEY, v {kind} NULL)")
    with pytest.raises(ConnectorError, match=r"column v of table narrow is .*: it does not take every"):
        open_table(stream(mariadb, f"id INT, v {declared}", table="narrow"))


TEXTS = "k STRING, v INT"


@pytest.mark.parametrize(
    ("columns", "key", "rest", "message"),
    [
        (TEXTS, "k", "k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int", "collation utf8mb4_general_ci"),
        (TEXTS, "k", "k varchar(9) COLLATE utf8mb4_bin PRIMARY KEY, v int UNIQUE", "another unique index, v (v)"),
        (TEXTS, "k", "k varchar(9) COLLATE utf8mb4_bin, v int, UNIQUE (k(2))", "unique index, k (k(2))"),
        (TEXTS, "k", "k varchar(9) COLLATE utf8mb4_bin, v int", "no primary key or unique index over (k)"),
        ("f FLOAT", "f", "f float PRIMARY KEY", "column f of table odd is FLOAT: in a key it equals no number"),
        ("id INT, a% INT", "id", "id int PRIMARY KEY, `a%` int", "column a% of table odd has % in its name"),
        ("id INT", "id", "id int PRIMARY KEY) ENGINE = MyISAM COMMENT = (", "stored by MyISAM, which has no transac"),
    ],
)
def test_a_table_in_which_an_upsert_could_meet_another_row(
    mariadb: MariaDb, columns: str, key: str, rest: str, message: str
) -> None:
    mariadb.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd ({rest})".replace(" COMMENT = ()", ""))
    with pytest.raises(ConnectorError) as raised:
        open_table(stream(mariadb, columns, key, table="odd"))
    assert message in str(raised.value)


def test_a_column_that_counts_by_itself_may_have_an_index_of_its_own(mariadb: MariaDb) -> None:
    mariadb.execute(
        "DROP TABLE IF EXISTS counted",
        "CREATE TABLE counted (nr int AUTO_INCREMENT PRIMARY KEY, k int UNIQUE, v int)",
    )
    sink = open_table(stream(mariadb, "k INT, v INT", "k", table="counted"))
    write(sink, (1, 10, 1), (2, 20, 1))
    write(sink, (1, 10, -1), (1, 11, 1))
    assert mariadb.execute("SELECT k, v FROM counted ORDER BY k") == [(1, 11), (2, 20)]


def test_a_zero_in_a_key_that_counts_by_itself_is_a_zero(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE OR REPLACE TABLE counted (nr int AUTO_INCREMENT PRIMARY KEY, v int)")
    sink = open_table(stream(mariadb, "nr INT, v INT", "nr", table="counted"))
    write(sink, (0, 10, 1), (5, 50, 1))
    write(sink, (0, 10, -1), (0, 11, 1))
    assert mariadb.execute("SELECT nr, v FROM counted ORDER BY nr") == [(0, 11), (5, 50)]


def test_a_column_that_counts_by_itself_and_is_written_may_meet_another_row(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE OR REPLACE TABLE counted (nr int AUTO_INCREMENT PRIMARY KEY, k int UNIQUE)")
    with pytest.raises(ConnectorError, match=r"another unique index, PRIMARY \(nr\)"):
        open_table(stream(mariadb, "k INT, nr INT", "k", table="counted"))


@pytest.mark.parametrize("kind", ["timestamp(6) NOT NULL DEFAULT current_timestamp(6)", "int AUTO_INCREMENT"])
def test_a_null_for_which_the_table_would_put_another_value_is_refused(mariadb: MariaDb, kind: str) -> None:
    mariadb.execute(f"CREATE OR REPLACE TABLE filled (k int PRIMARY KEY, v {kind}, KEY (v))")
    declared, value = ("TIMESTAMP", dt.datetime(2026, 2, 28, tzinfo=dt.UTC)) if "time" in kind else ("INT", 7)
    sink = open_table(stream(mariadb, f"k INT, v {declared}", "k", table="filled"))
    write(sink, (1, value, 1), (2, value, 1))
    with pytest.raises(ConnectorError, match="column v is NULL in a result: table filled would put a value of its own"):
        write(sink, (1, value, -1), (1, None, 1))
    write(sink, (1, None, -1))
    assert mariadb.execute("SELECT k FROM filled") == [(2,)]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("ssl_ca=/no/file", "ssl_ca in the url: the file cannot be read"),
        ("charset=klingon", "there is no charset klingon"),
    ],
)
def test_options_that_the_driver_would_trip_over(orders: MariaDb, option: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_table(stream(orders, url=f"{orders.url}?{option}"))


@pytest.mark.parametrize("kind", ["varchar(9) COLLATE utf8mb4_bin", "char(9) COLLATE utf8mb4_nopad_bin"])
def test_a_key_that_ends_in_a_space_is_refused_where_that_makes_no_difference(mariadb: MariaDb, kind: str) -> None:
    mariadb.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (`the key` {kind} PRIMARY KEY, v varchar(9))")
    sink = open_table(stream(mariadb, "the key STRING, v STRING", "the key", table="odd"))
    write(sink, ("a", "b ", 1), (" a", "", 1))
    with pytest.raises(ConnectorError, match=r"a text for table odd ends in a space: the key = 'a '\n"):
        write(sink, ("a ", "b", 1))
    assert mariadb.execute("SELECT * FROM odd ORDER BY v") == [(" a", ""), ("a", "b ")]


def test_a_value_that_would_lose_its_space(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE OR REPLACE TABLE odd (id int PRIMARY KEY, v char(9))")
    sink = open_table(stream(mariadb, "id INT, v STRING", table="odd"))
    write(sink, (1, " a", 1), (2, None, 1))
    with pytest.raises(ConnectorError, match=r"a text for table odd ends in a space: v = 'a '\n"):
        write(sink, (1, "a ", 1))


def test_a_uuid_is_written_as_the_database_shows_it(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE OR REPLACE TABLE odd (u uuid PRIMARY KEY)")
    sink = open_table(stream(mariadb, "u STRING", "u", table="odd"))
    write(sink, ("8d6f1a9e-0c8e-4a57-9b53-0d6c1c1e7a11", 1))
    with pytest.raises(ConnectorError, match=r"is no UUID in its usual form: u = '8D6F1A9E-"):
        write(sink, ("8D6F1A9E-0C8E-4A57-9B53-0D6C1C1E7A11", 1))
    write(sink, ("8d6f1a9e-0c8e-4a57-9b53-0d6c1c1e7a11", -1))
    assert mariadb.execute("SELECT * FROM odd") == []


@pytest.mark.parametrize(
    ("columns", "table", "message"),
    [
        (ORDERS, "order", "the database has no table order for results to be written to\nhint: create it first"),
        (ORDERS, "warehouse.orders", "the database has no table warehouse.orders"),
        ("id BIGINT, state STRING", "orders", "no column state, which results declares\nhint: did you mean status"),
    ],
)
def test_a_table_that_does_not_fit(orders: MariaDb, columns: str, table: str, message: str) -> None:
    with pytest.raises(ConnectorError) as raised:
        open_table(stream(orders, columns, table=table))
    assert message in str(raised.value)


def test_options_of_other_drivers_and_wrong_logins(orders: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="MariaDB has no option useSSL in the url"):
        open_table(stream(orders, url=f"{orders.url}?useSSL=false"))
    with pytest.raises(ConnectorError, match="Unknown database 'nowhere'"):
        open_table(stream(orders, url=orders.url.replace("shop", "nowhere")))
    monkeypatch.setenv("MARIADB_TEST_PASSWORD", "verrät-nichts")
    close_all()
    with pytest.raises(ConnectorError, match=r"table orders cannot be written to: Access denied") as error:
        open_table(stream(orders))
    assert "verrät" not in str(error.value)


def test_a_user_without_the_right_to_write(orders: MariaDb) -> None:
    orders.execute(
        f"CREATE OR REPLACE USER reader@'127.0.0.1' IDENTIFIED BY '{orders.password}'",
        "GRANT SELECT ON shop.orders TO reader@'127.0.0.1'",
    )
    sink = open_table(stream(orders, user="reader"))
    with pytest.raises(ConnectorError, match=r"batch 7 could not be written to table orders: INSERT.* command denied"):
        write(sink, (1, "x", 1.0, 1))


# -- a server that is down, or hangs -----------------------------------------------------------------------------------


def test_a_server_that_goes_and_comes_back(orders: MariaDb) -> None:
    sink = open_table(stream(orders))
    orders.stop()
    with pytest.raises(SinkOutageError) as raised:
        write(sink, (1, "x", 1.0, 1))
    assert raised.value.waiting.startswith(f"waiting for MariaDB at 127.0.0.1:{orders.port}: Can't connect")
    with pytest.raises(SinkOutageError):
        open_table(stream(orders))
    orders.start()
    write(sink, (1, "x", 1.0, 1))
    orders.stop()
    orders.start()
    write(sink, (2, "x", 1.0, 1))  # over a new connection: the one before was cut
    assert len(found(orders)) == 3


def test_a_locked_row_and_a_server_that_hangs(orders: MariaDb) -> None:
    sink = open_table(stream(orders, timeout="1 s"))
    with session(orders) as other:
        other.cursor().execute("SELECT * FROM orders WHERE id = 9 FOR UPDATE")
        with pytest.raises(SinkOutageError, match=r"Lock wait timeout|max_statement_time"):
            write(sink, (9, "x", 1.0, 1))
    with orders.frozen():
        begin = time.monotonic()
        with pytest.raises(SinkOutageError, match="timed out"):
            write(sink, (9, "x", 1.0, 1))
        assert time.monotonic() - begin < 15
    write(sink, (9, "ours", 1.0, 1))
    assert found(orders) == [(9, "ours", 1.0, 1)]


def test_a_commit_whose_answer_was_lost_is_made_again_and_changes_nothing(orders: MariaDb) -> None:
    with relay(orders.port) as line:
        sink = open_table(stream(orders, url=f"jdbc:mariadb://127.0.0.1:{line.port()}/shop"))
        line.lose_answer_to(b"COMMIT")
        sink.write(batch(sink.stream, (1, "open", 2.0, 1), (9, "theirs", 1.5, -1)), 7)
        assert line.has_lost()
    assert found(orders) == [(1, "open", 2.0, 1)]


def test_a_deadlock_is_tried_again_at_once(orders: MariaDb) -> None:
    """The trigger ends the first transaction as the server ends one of two that wait for each other."""
    orders.execute(
        "CREATE OR REPLACE SEQUENCE attempts ENGINE = MyISAM",
        "CREATE TRIGGER once BEFORE INSERT ON orders FOR EACH ROW BEGIN IF NEXTVAL(attempts) = 1 THEN "
        "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; END IF; END",
    )
    sink = open_table(stream(orders))
    sink.write(batch(sink.stream, (1, "open", 2.0, 1)), 7)
    assert orders.execute("SELECT NEXTVAL(attempts)") == [(3,)]
    assert len(found(orders)) == 2


# -- at random ---------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "A", "b", "ä", "\\", "'", "%", " a", ""])
VALUES = st.none() | st.text(st.characters(codec="utf-8", categories=("L", "Zs", "P", "So")), max_size=5)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), min_size=1, max_size=6))
def test_the_table_is_what_the_changelog_makes_of_it(mariadb: MariaDb, states: list[dict[str, str | None]]) -> None:
    mariadb.execute(
        "DROP TABLE IF EXISTS states",
        "CREATE TABLE states (k varchar(9) COLLATE utf8mb4_bin PRIMARY KEY, v varchar(9) COLLATE utf8mb4_bin)",
    )
    sink = open_table(stream(mariadb, "k STRING, v STRING", "k", table="states"))
    held: dict[str, str | None] = {}
    for state in states:
        write(sink, *((k, v, -1) for k, v in held.items()), *((k, v, 1) for k, v in state.items()))
        held = state
        assert dict(mariadb.execute("SELECT * FROM states")) == held
