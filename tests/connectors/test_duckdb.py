"""Tables of a DuckDB file as sinks."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.connectors.database_tables import LATER, ORDERS, batch, table_of
from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.duckdb_table import DuckDbConnector, DuckDbTable
from watersmeet.errors import ConfigError, ConnectorError, SinkOutageError, WatersmeetError
from watersmeet.lookup.duckdb_tables import opened

_HOLDS = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def stream(path: Path, columns: str = ORDERS, key: str = "id", **options: str) -> StreamDef:
    return table_of(columns, key, "duckdb", **{"path": str(path), **options})


def write(target: StreamDef, *rows: tuple[Any, ...]) -> None:
    """The batch, and once more, as after a failure: that changes nothing."""
    table = DuckDbTable(target)
    table.prepare()
    for _ in range(2):
        table.write(batch(target, *rows), 7)


def run(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(path) as connection:
        for statement in statements[:-1]:
            connection.execute(statement)
        return connection.execute(statements[-1]).fetchall()


@contextmanager
def held_by_another_process(path: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield
        finally:
            process.communicate(timeout=30)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    run(
        path,
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, status VARCHAR CHECK (length(status) < 9), price DOUBLE, "
        "seen INT DEFAULT 1)",
        "INSERT INTO orders VALUES (9, 'theirs', 1.5, 1)",
    )
    return path


def found(path: Path) -> list[tuple[Any, ...]]:
    return run(path, "SELECT * FROM orders ORDER BY id")


def test_rows_are_inserted_replaced_and_deleted_by_key(shop: Path) -> None:
    target = stream(shop)
    write(target, (1, "open", 2.0, 1), (2, None, None, 1), (3, "open", 0.0, 1), (4, "x", 1.0, 1), (4, "x", 1.0, -1))
    assert found(shop) == [(1, "open", 2.0, 1), (2, None, None, 1), (3, "open", 0.0, 1), (9, "theirs", 1.5, 1)]
    run(shop, "UPDATE orders SET seen = 5")
    write(target, (1, "open", 2.0, -1), (1, "paid", 2.0, 1), (3, "open", 0.0, -1), (5, "x", 1.0, -1))
    assert found(shop) == [(1, "paid", 2.0, 5), (2, None, None, 5), (9, "theirs", 1.5, 5)]
    write(target)


def test_a_batch_is_there_whole_or_not_at_all(shop: Path) -> None:
    rows = [(i, "good", 1.0, 1) for i in range(10, 5010)]
    with pytest.raises(ConnectorError) as raised:
        write(stream(shop), *rows, (5010, "much too long", 1.0, 1), (9, "theirs", 1.5, -1))
    said = f"batch 7 could not be written to table orders of {shop}: CHECK constraint failed"
    assert str(raised.value).startswith(said)
    assert str(raised.value).endswith(LATER)
    assert found(shop) == [(9, "theirs", 1.5, 1)]
    write(stream(shop), *rows)
    assert len(found(shop)) == 5001


MOMENT = dt.datetime(2026, 2, 28, 10, 0, 0, 123456, tzinfo=dt.UTC)
LOCAL = MOMENT.replace(tzinfo=None)
TYPES: list[tuple[str, Any, Any]] = [
    ("BOOLEAN", True, False),
    ("TINYINT", 7, -8),
    ("SMALLINT", 7, -8),
    ("INT", 7, -8),
    ("BIGINT", 9007199254740993, -8),
    ("FLOAT", 1.5, float("inf")),
    ("DOUBLE", 0.30000000000000004, float("-inf")),
    ("DECIMAL(38:9)", Decimal("0.000000001"), Decimal("99999999999999999999999999999.999999999")),
    ("STRING", "é'%s\\ ", ""),
    ("BINARY", b"\x00\xff", b""),
    ("DATE", dt.date(2026, 2, 28), dt.date(1, 1, 1)),
    ("TIMESTAMP", MOMENT, MOMENT + dt.timedelta(microseconds=1)),
    ("TIMESTAMP_NTZ", LOCAL, dt.datetime(1900, 1, 1)),  # noqa: DTZ001
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("declared", "one", "other"), TYPES, ids=[name for name, *_ in TYPES])
def test_a_table_is_made_and_has_values_of_every_type(tmp_path: Path, declared: str, one: Any, other: Any) -> None:
    path = tmp_path / "new.duckdb"
    target = stream(path, f'a "key" {declared}, b.c {declared}', 'a "key"', table="made")
    write(target, (one, other, 1), (other, None, 1))
    shown = "SET TimeZone = 'UTC'", "SELECT * FROM made ORDER BY ALL"
    assert sorted(run(path, *shown), key=repr) == sorted([(one, other), (other, None)], key=repr)
    write(target, (one, other, -1), (one, one, 1), (other, None, -1))
    assert run(path, *shown) == [(one, one)]


def test_threads_of_a_process_take_turns(shop: Path) -> None:
    target = stream(shop)
    failed: list[WatersmeetError] = []

    def another() -> None:
        try:
            write(target, (1, "open", 2.0, 1))
        except WatersmeetError as error:
            failed.append(error)

    with opened(str(shop), read_only=True):
        thread = threading.Thread(target=another, daemon=True)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(20)
    assert not thread.is_alive()
    assert not failed
    assert (1, "open", 2.0) in run(shop, "SELECT id, status, price FROM orders")


@pytest.mark.parametrize("table", ["changes", "given", "old", "kept", "excluded"])
def test_a_table_may_have_any_name(tmp_path: Path, table: str) -> None:
    path = tmp_path / "shop.duckdb"
    target = stream(path, "id INT, b STRING", table=table)
    write(target, (1, "x", 1), (2, "y", 1))
    write(target, (1, "x", -1), (2, "y", -1), (2, "z", 1))
    assert run(path, f"SELECT * FROM {table}") == [(2, "z")]


def test_names_are_found_whatever_their_case_and_in_schemas(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    run(path, "CREATE SCHEMA sales", 'CREATE TABLE sales.seen ("ID" INT, b VARCHAR COLLATE NOCASE, UNIQUE (b, "ID"))')
    target = stream(path, "id INT, b STRING", "id, b", table="sales.seen")
    write(target, (1, "x", 1), (1, "X", 1), (2, "y", 1))
    write(target, (1, "x", -1), (2, "y", 1))
    assert run(path, "SELECT * FROM sales.seen ORDER BY ALL") == [(1, "X"), (2, "y")], "x and X are two keys"


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        ("INTEGER", "DOUBLE"),
        ("FLOAT", "DOUBLE"),
        ("DECIMAL(9, 2)", "DECIMAL(9:3)"),
        ("INTEGER", "DECIMAL(9:3)"),
        ("TIMESTAMP_S", "TIMESTAMP_NTZ"),
        ("TIMESTAMP", "TIMESTAMP"),
        ("UUID", "STRING"),
        ("VARCHAR", "INT"),
        ("BOOLEAN", "INT"),
    ],
)
def test_a_column_that_would_change_values_is_refused(tmp_path: Path, kind: str, declared: str) -> None:
    path = tmp_path / "shop.duckdb"
    run(path, f"CREATE TABLE orders (id INT PRIMARY KEY, v {kind})")
    with pytest.raises(ConnectorError, match=r"column v of table orders is .*: it does not take every"):
        DuckDbTable(stream(path, f"id INT, v {declared}")).prepare()


def test_wider_types_are_taken_and_values_beyond_narrow_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    run(path, "CREATE TABLE orders (id INT PRIMARY KEY, f DOUBLE, d DECIMAL(20, 5), e ENUM('a', 'b'))")
    target = stream(path, "id BIGINT, f FLOAT, d DECIMAL(9:2), e STRING")
    write(target, (1, 1.5, Decimal("1.25"), "a", 1))
    assert run(path, "SELECT * FROM orders") == [(1, 1.5, Decimal("1.25000"), "a")]
    for row in (1 << 40, 1.5, None, "a", 1), (2, 1.5, None, "c", 1):
        with pytest.raises(ConnectorError, match="batch 7 could not be written to table orders of "):
            write(target, row)


def test_what_does_not_fit_is_said_before_the_query_starts(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="no column state, which results declares\nhint: did you mean status"):
        DuckDbTable(stream(shop, "id BIGINT, state STRING")).prepare()
    with pytest.raises(ConnectorError, match=r"no primary key or unique index over \(status\)"):
        DuckDbTable(stream(shop, key="status")).prepare()
    with pytest.raises(ConnectorError, match=r"cannot be written to: Cannot open file .*No such file or directory"):
        DuckDbTable(stream(tmp_path / "nowhere" / "a.duckdb")).prepare()
    (tmp_path / "text").write_text("no database " * 1000)
    with pytest.raises(ConnectorError, match="not a valid DuckDB database file"):
        DuckDbTable(stream(tmp_path / "text")).prepare()
    with pytest.raises(ConnectorError, match=r"cannot be written to: Schema with name sales does not exist!$"):
        DuckDbTable(stream(shop, table="sales.orders")).prepare()


def test_options() -> None:
    for options, message in (
        ({}, "path"),
        ({"path": "a", "table": "a.b.c"}, "table"),
        ({"path": "a", "mode": "x"}, "mode"),
    ):
        definition = table_of(ORDERS, "id", "duckdb", **options).model_copy(update={"options": options})
        with pytest.raises(ConfigError, match=message):
            DuckDbConnector().check(definition)
    with pytest.raises(ConfigError, match="duckdb takes no column of type list"):
        DuckDbConnector().check(table_of("id INT, a ARRAY<INT>", "id", "duckdb", path="a"))


def test_a_file_that_another_process_has_is_waited_for(shop: Path) -> None:
    target = stream(shop)
    table = DuckDbTable(target)
    with held_by_another_process(shop):
        with pytest.raises(SinkOutageError) as raised:
            table.write(batch(target, (1, "x", 1.0, 1)), 7)
        assert raised.value.waiting.startswith(f"waiting for {shop}: Could not set lock on file")
        with pytest.raises(SinkOutageError):
            table.prepare()
    table.write(batch(target, (1, "x", 1.0, 1)), 7)
    with duckdb.connect(shop, read_only=True), pytest.raises(SinkOutageError, match="different configuration"):
        table.write(batch(target, (2, "x", 1.0, 1)), 8)
    with duckdb.connect(shop):  # this process may write too
        table.write(batch(target, (2, "x", 1.0, 1)), 8)
    assert len(found(shop)) == 3


KEYS = st.tuples(st.sampled_from(["a", "A", "b", "'", ""]), st.integers(0, 1))
VALUES = st.none() | st.text(max_size=3)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=5), min_size=1, max_size=6))
def test_the_table_is_what_the_changelog_makes_of_it(
    tmp_path: Path, states: list[dict[tuple[str, int], str | None]]
) -> None:
    path = tmp_path / "states.duckdb"
    path.unlink(missing_ok=True)
    target = stream(path, "k STRING, n INT, v STRING", "k, n", table="states")
    held: dict[tuple[str, int], str | None] = {}
    for state in states:
        write(target, *((*k, v, -1) for k, v in held.items()), *((*k, v, 1) for k, v in state.items()))
        held = state
        assert {(k, n): v for k, n, v in run(path, "SELECT * FROM states")} == held
