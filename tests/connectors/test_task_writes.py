"""Batches that tasks write themselves leave what the driver would have left, whatever happens to tasks and server."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tests.connectors.test_delta import stream as delta_stream
from tests.connectors.test_jdbc import stream as jdbc_stream
from tests.support.postgres import Postgres
from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors import task_writes
from watersmeet.connectors.delta.connector import DeltaBatch
from watersmeet.connectors.jdbc.sink import JdbcSink, Staging, open_table
from watersmeet.connectors.jdbc.staging import StagedRowsLostError, StageWriter, prefix_of, staged_of
from watersmeet.connectors.net_changes import net_changes
from watersmeet.connectors.registry import open_sink
from watersmeet.connectors.task_writes import Handed
from watersmeet.errors import ConfigError, ConnectorError, SinkOutageError
from watersmeet.lookup.tables import table_schema

QUERY = "into_results_from_orders-1a2b"
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001
#: Declared types, those of PostgreSQL, and values.
KINDS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "BOOLEAN": ("boolean", st.booleans()),
    "TINYINT": ("smallint", st.integers(-128, 127)),
    "BIGINT": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "FLOAT": ("double precision", st.floats(width=32)),
    "DOUBLE": ("double precision", st.floats()),
    "DECIMAL(38:9)": ("numeric(38,9)", st.decimals(-(10**29) + 1, 10**29 - 1, places=9)),
    "STRING": ("text", st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=9)),
    "BINARY": ("bytea", st.binary(max_size=9)),
    "DATE": ("date", st.dates()),
    "TIMESTAMP": ("timestamptz", MOMENTS.map(lambda each: each.replace(tzinfo=dt.UTC))),
    "TIMESTAMP_NTZ": ("timestamp", MOMENTS),
}
COLUMNS = ", ".join(f"v{number} {kind}" for number, kind in enumerate(KINDS))
VALUES = st.tuples(*(st.none() | values for _, values in KINDS.values()))


def batch(target: StreamDef, rows: list[tuple[Any, ...]], *more: str) -> pa.Table:
    """Rows of the declared columns, and of more that are TINYINT."""
    schema = table_schema(target, [column.name for column in target.columns])
    for name in more:
        schema = schema.append(pa.field(name, pa.int8()))
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def shown(rows: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


# -- Delta -------------------------------------------------------------------------------------------------------------


@example([tuple("\x85\u2028" if kind == "STRING" else None for kind in KINDS)], 0)  # lines to Python, not to JSON
@given(st.lists(VALUES, min_size=1, max_size=20), st.integers(0, 20))
def test_files_of_tasks_are_those_of_the_driver(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], few: int
) -> None:
    """Values, and the statistics by which readers leave files out."""
    folder = tmp_path_factory.mktemp("delta")
    target = delta_stream(folder / "by_tasks", COLUMNS, key="")
    table = batch(target, rows)
    write_deltalake(folder / "by_driver", table)
    appended = DeltaBatch(target, 0, f"{QUERY}-{0:012d}")
    files = appended.open(table.schema)
    assert files is not None
    handed, written = table.slice(0, few), table.slice(few)
    appended.commit(Handed(handed, [files.write(written.to_reader())] if written.num_rows else []))
    assert shown(DeltaTable(folder / "by_tasks").to_pyarrow_table()) == shown(
        DeltaTable(folder / "by_driver").to_pyarrow_table()
    )
    if few == 0:
        added = [statistics(folder / name) for name in ("by_tasks", "by_driver")]
        assert added[0] == added[1]
    assert appended.open(table.schema) is None, "it has been committed"
    appended.commit(Handed(handed, []))
    assert DeltaTable(folder / "by_tasks").version() == 1


def statistics(folder: Path) -> list[Any]:
    """The newest commit's descriptions of files, but for their names and times."""
    commits = sorted((folder / "_delta_log").glob("*.json"))
    added = [json.loads(line).get("add") for line in commits[-1].read_text().split("\n") if line]
    return [
        {**json.loads(each["stats"]), "size": each["size"], "values": each["partitionValues"]}
        for each in added
        if each is not None
    ]


def test_a_table_with_partitions_properties_and_constraints(tmp_path: Path) -> None:
    target = delta_stream(tmp_path / "t t", "a b STRING, n BIGINT, p DATE", key="")
    schema = batch(target, []).schema
    DeltaTable.create(
        tmp_path / "t t", schema, partition_by=["a b", "p"], configuration={"delta.dataSkippingNumIndexedCols": "0"}
    ).alter.add_constraint({"positive": "n > 0"})
    names = ["x/y %é: =1", "%2F", "", None, "_hidden", "'\"\\"]
    rows = [(name, number + 1, dt.date(2026, 1, 1 + number % 2)) for number, name in enumerate(names)]
    appended = DeltaBatch(target, 3, f"{QUERY}-{3:012d}")
    files = appended.open(schema)
    assert files is not None
    appended.commit(Handed(schema.empty_table(), [files.write(batch(target, rows).to_reader())]))
    found = DeltaTable(tmp_path / "t t")
    assert shown(found.to_pyarrow_table().select(["a b", "n", "p"])) == shown(
        batch(target, [(name or None, *more) for name, *more in rows])
    ), "to a table, an empty name of a partition is NULL"
    assert found.transaction_version(QUERY) == 3
    assert all("minValues" not in each or not each["minValues"] for each in statistics(tmp_path / "t t"))
    with pytest.raises(ConnectorError, match=r"batch 3 could not be written to the Delta table .*validation check"):
        files.write(batch(target, [("x", -1, None)]).to_reader())


# -- PostgreSQL --------------------------------------------------------------------------------------------------------

TABLE = f"(k bigint PRIMARY KEY, {', '.join(f'v{n} {kind}' for n, (kind, _) in enumerate(KINDS.values()))})"


def staged_write(sink: JdbcSink, handed: pa.Table, written: list[pa.Table], number: int = 7) -> None:
    """A batch of which a task hands over some rows, and others stage theirs; net changes, as the tasks compute them."""
    place = sink.staging_place()
    assert place is not None
    prefix = prefix_of(QUERY)
    writer = StageWriter(sink.stream, sink.address, place, f"{prefix}{number}_", "batch 7 could not be written to it")
    notes = [writer.write(rows.to_reader()) for rows in written if rows.num_rows]
    sink.write(handed, number, Staging(place, prefix, [staged_of(note) for note in notes], drops=True))


def leftovers(server: Postgres) -> list[tuple[Any, ...]]:
    return server.execute("SELECT relname FROM pg_class WHERE relname LIKE 'watersmeet%' AND relkind = 'r'")


CHANGES = st.lists(st.tuples(st.integers(0, 30), VALUES, st.booleans()), max_size=30, unique_by=lambda each: each[0])


@settings(phases=[Phase.generate])  # to shrink takes minutes: each try is some transactions
@given(st.lists(CHANGES, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_rows_that_tasks_stage_are_those_of_the_driver(
    server: Postgres, batches: list[list[tuple[int, tuple[Any, ...], bool]]], drawn: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOOKUP_TEST_PASSWORD", server.password)
        sinks = []
        for name in ("by_driver", "by_tasks"):
            server.execute(f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} {TABLE}")
            sinks.append(open_table(jdbc_stream(server, f"k BIGINT, {COLUMNS}", "k", table=name)))
        for number, rows in enumerate(batches):
            changes = [(key, *values, 1 if held else -1) for key, values, held in rows]
            table = net_changes(batch(sinks[0].stream, changes, "_tp_delta"), sinks[0].stream)
            sinks[0].write(table, number)
            parts = [drawn.randrange(3) for _ in range(table.num_rows)]
            handed, *written = (table.filter(pa.array([each == n for each in parts], pa.bool_())) for n in range(3))
            for _ in range(drawn.choice([1, 2])):
                staged_write(sinks[1], handed, written, number)
            found = [server.execute(f"SELECT * FROM {name} ORDER BY k") for name in ("by_driver", "by_tasks")]
            assert repr(found[0]) == repr(found[1])
            assert leftovers(server) == []


ODD, QUOTED = 'Od"d %s', '"Od""d %s"'


@pytest.mark.parametrize("staging", [{}, {"staging": ODD}], ids=["in the table's schema", "in another"])
def test_names_types_and_texts_are_taken_as_they_are(postgres: Postgres, staging: dict[str, str]) -> None:
    columns = """("a 'b' %s;(x)" varchar(9), "K" char(5), PRIMARY KEY ("K"))"""
    schema = "public" if staging else QUOTED
    postgres.execute(
        f"DROP SCHEMA IF EXISTS {QUOTED} CASCADE",
        f"CREATE SCHEMA {QUOTED}",
        'DROP TABLE IF EXISTS "t %s;"',
        f'CREATE TABLE {schema}."t %s;" {columns}',
    )
    table = "t %s;" if staging else f"{ODD}.t %s;"
    sink = open_table(jdbc_stream(postgres, "a 'b' %s;(x) STRING, K STRING", "K", table=table, **staging))
    place, nothing = sink.staging_place(), batch(sink.stream, [], "_tp_delta")
    assert place is not None
    assert (place.schema, place.types) == (ODD, ("character varying(9)", "character(5)"))
    texts = ["'; DROP", '"%s\r\n\\', None, "", "NULL", "\\.", "\\N"]
    rows = [(text, str(number), 1) for number, text in enumerate(texts)]
    staged_write(sink, nothing, [batch(sink.stream, [*rows, ("much too long", "x", -1)], "_tp_delta")])
    found = postgres.execute(f"""SELECT "a 'b' %s;(x)", "K" FROM {schema}."t %s;" ORDER BY "K" """)
    assert found == [(text, f"{number:<5}") for number, text in enumerate(texts)]
    for text, said in ("much too long", r"too long for type character varying\(9\)"), ("a\0", r"NUL \(0x00\)"):
        with pytest.raises(ConnectorError, match=f"batch 7 could not be written to it: .*{said}"):
            staged_write(sink, nothing, [batch(sink.stream, [(text, "y", 1)], "_tp_delta")])
    # two keys that the database takes for one
    staged_write(
        sink, nothing, [batch(sink.stream, [("old", "z", -1), ("new", "z ", 1), ("new", "z  ", 1)], "_tp_delta")]
    )
    found = postgres.execute(f"""SELECT "a 'b' %s;(x)" FROM {schema}."t %s;" WHERE "K" = 'z' """)
    assert found == [("new",)]
    assert leftovers(postgres) == []


@pytest.fixture
def orders(postgres: Postgres) -> Postgres:
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id bigint PRIMARY KEY, status varchar(9), price double precision CHECK (price < 1e6))",
    )
    return postgres


def price_rows(sink: JdbcSink, count: int, price: float = 1.0) -> pa.Table:
    return batch(sink.stream, [(number, "open", price, 1) for number in range(count)], "_tp_delta")


def prices(server: Postgres) -> list[tuple[Any, ...]]:
    return server.execute("SELECT count(*), min(price), max(price) FROM orders")


def test_a_large_staging_table_is_merged_in_parts(orders: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watersmeet.connectors.jdbc.staging._CHUNK", 700)
    sink = open_table(jdbc_stream(orders))
    before = len(orders.statements())
    for price in 1.0, 2.0:
        staged_write(sink, price_rows(sink, 100, price), [price_rows(sink, 5000, price).slice(100)])
    assert prices(orders) == [(5000, 2.0, 2.0)]
    merged = [each for each in orders.statements()[before:] if "SELECT DISTINCT" in each]
    assert 10 <= len(merged) <= 40
    gone = batch(sink.stream, [(number, None, None, -1) for number in range(1, 5000)], "_tp_delta")
    staged_write(sink, gone.slice(0, 0), [gone.slice(0, 2500), gone.slice(2500)])
    assert prices(orders) == [(1, 2.0, 2.0)]


def test_a_constraint_is_told_as_ever_and_nothing_is_written(orders: Postgres) -> None:
    sink = open_table(jdbc_stream(orders))
    said = []
    rows = price_rows(sink, 9, 1e7)
    for handed, written in (rows, []), (rows.slice(0, 0), [rows]):
        with pytest.raises(ConnectorError) as raised:
            staged_write(sink, handed, written)
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert said[0].startswith("batch 7 could not be written to table orders: new row for relation")
    assert prices(orders) == [(0, None, None)]


def test_rows_that_a_crash_of_the_server_took_are_noticed(orders: Postgres) -> None:
    """An unlogged table is empty after a crash; and it is gone where the answer to the merge's COMMIT was lost."""
    sink = open_table(jdbc_stream(orders))
    place = sink.staging_place()
    assert place is not None
    prefix = prefix_of(QUERY)
    staged = staged_of(StageWriter(sink.stream, sink.address, place, prefix, "").write(price_rows(sink, 9).to_reader()))
    orders.stop()
    orders.start()
    assert orders.execute(f"SELECT count(*) FROM {staged.name}") == [(0,)]
    for _ in range(2):
        with pytest.raises(StagedRowsLostError):
            sink.write(price_rows(sink, 0), 7, Staging(place, prefix, [staged], drops=True))
        assert prices(orders) == [(0, None, None)]
        orders.execute(f"DROP TABLE IF EXISTS {staged.name}")


def test_a_user_who_may_not_create_tables_writes_through_the_driver(
    orders: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    orders.execute(
        "DROP SCHEMA IF EXISTS room CASCADE",
        "DROP OWNED BY clerk; DROP ROLE clerk"
        if orders.execute("SELECT 1 FROM pg_roles WHERE rolname = 'clerk'")
        else "SELECT 1",
        f"CREATE ROLE clerk LOGIN PASSWORD '{orders.password}'",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO clerk",
        "CREATE SCHEMA room",
    )
    assert open_table(jdbc_stream(orders, user="clerk")).staging_place() is None
    assert "its user may not create tables in schema public (GRANT CREATE ON SCHEMA public, or" in caplog.text
    caplog.clear()
    assert open_table(jdbc_stream(orders, user="clerk", staging="none")).staging_place() is None
    assert not caplog.text
    for schema, said in ("room", r"may not create tables in schema room"), ("attic", "no schema attic"):
        with pytest.raises(ConnectorError, match=said):
            open_table(jdbc_stream(orders, user="clerk", staging=schema)).staging_place()
    orders.execute("GRANT USAGE, CREATE ON SCHEMA room TO clerk")
    sink = open_table(jdbc_stream(orders, user="clerk", staging="room"))
    staged_write(sink, price_rows(sink, 0), [price_rows(sink, 9)])
    assert prices(orders) == [(9, 1.0, 1.0)]
    with pytest.raises(ConfigError, match="staging is for postgresql: the driver writes to sqlite"):
        open_table(jdbc_stream(orders, url="jdbc:sqlite:x.db", staging="room"))


# -- on Spark ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DiesOnce:
    """Writes all, and then the first attempt of each task fails: what it wrote must not count."""

    writer: task_writes.TaskWriter

    def write(self, rows: pa.RecordBatchReader) -> str:
        note = self.writer.write(rows)
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("this attempt has written, and dies")
        return note


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any row is too many to be handed over."""
    monkeypatch.setattr(task_writes, "FEW_BYTES", 0)


@pytest.fixture
def dying(many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All first attempts at tasks fail."""
    whole = task_writes.write_in_tasks

    def write(frame: DataFrame, writer: task_writes.TaskWriter, *more: Any) -> Handed:
        return whole(frame, DiesOnce(writer), *more)

    for module in "jdbc", "delta":
        monkeypatch.setattr(f"watersmeet.connectors.{module}.connector.write_in_tasks", write)


def orders_frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id BIGINT, status STRING, price DOUBLE, _tp_delta TINYINT").repartition(3)


def opened(target: StreamDef, folder: Path) -> Callable[[DataFrame, int], object]:
    sink = open_sink(target, folder, changelog=target.changes, show=lambda *_: None)
    return lambda frame, number: sink.write(frame, number, f"{QUERY}-{number:012d}")


@pytest.fixture
def secret(orders: Postgres, tmp_path: Path) -> dict[str, str]:
    """The password in a file: workers are older than variables of a test."""
    path = tmp_path / "password"
    path.write_text(orders.password)
    return {"password": f"${{file:{path}}}"}


@pytest.mark.usefixtures("dying")
def test_attempts_that_fail_leave_nothing_in_the_database(
    spark: SparkSession, orders: Postgres, secret: dict[str, str], tmp_path: Path
) -> None:
    write = opened(jdbc_stream(orders, **secret), tmp_path)
    write(orders_frame(spark, *((number, "open", 1.0, 1) for number in range(50))), 0)
    changes = [
        (1, "open", 1.0, -1),
        (1, "paid", 2.0, 1),
        (2, "open", 1.0, -1),
        (3, None, None, 1),
        (3, "open", 1.0, -1),
    ]
    for _ in range(2):
        write(orders_frame(spark, *changes), 1)
    write(orders_frame(spark), 2)
    assert prices(orders) == [(49, 1.0, 2.0)]
    assert orders.execute("SELECT * FROM orders WHERE id < 4 ORDER BY id") == [
        (0, "open", 1.0),
        (1, "paid", 2.0),
        (3, None, None),
    ]
    assert leftovers(orders) == [], "those of attempts that died are dropped too"


@pytest.mark.usefixtures("dying")
def test_attempts_that_fail_are_not_in_the_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    target = delta_stream(tmp_path / "t", "id BIGINT, status STRING", key="")
    write = opened(target, tmp_path)
    rows = orders_frame(spark, *((number, "open", 1.0, 1) for number in range(50))).select("id", "status")
    for _ in range(2):
        write(rows, 0)
    write(rows.limit(0), 1)
    found = DeltaTable(tmp_path / "t")
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == list(range(50))
    assert found.version() == 1, "one commit, and the one that made the table"
    orphans = set(found.vacuum(retention_hours=0, enforce_retention_duration=False, full=True))
    assert len(orphans) == len(found.file_uris()) > 1, "each task wrote twice; VACUUM removes what does not count"


@pytest.mark.sample(2)
@pytest.mark.parametrize("few_bytes", [0, 1 << 20])
def test_nested_values_names_with_points_and_another_time_zone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_bytes: int
) -> None:
    monkeypatch.setattr(task_writes, "FEW_BYTES", few_bytes)
    moment = dt.datetime(2026, 2, 28, 10, 0, 0, 123456, tzinfo=dt.UTC)
    kinds = (
        "`o.id` INT NOT NULL, at TIMESTAMP, l ARRAY<TIMESTAMP>, m MAP<STRING, INT>, s STRUCT<a: TIMESTAMP, b: BINARY>"
    )
    rows = [(1, moment, [moment, None], {"x": 1}, (moment, b"\0")), (2, None, None, None, None)]
    frame = spark.createDataFrame(rows, kinds)
    target = delta_stream(tmp_path / "t", key="")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        opened(target, tmp_path)(frame, 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    found = sorted((tuple(row.values()) for row in DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()), key=repr)
    assert found == [(1, moment, [moment, None], [("x", 1)], {"a": moment, "b": b"\0"}), (2, None, None, None, None)]


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_what_goes_wrong_in_a_task(
    spark: SparkSession, orders: Postgres, secret: dict[str, str], tmp_path: Path
) -> None:
    write = opened(jdbc_stream(orders, **secret), tmp_path)
    good = [(number, "open", 1.0, 1) for number in range(20)]
    for row, said in (
        ((99, "much too long", 1.0, 1), r"batch 0 could not be written to table orders: value too long"),
        ((99, "open", 1e7, 1), "batch 0 could not be written to table orders: new row .* violates check constraint"),
        ((1, "paid", 1.0, 1), "results has the PRIMARY KEY .id., and the query emits several rows for one key"),
    ):
        with pytest.raises(ConnectorError, match=said) as raised:
            write(orders_frame(spark, *good, row), 0)
        assert orders.password not in str(raised.value)
        assert leftovers(orders) == [], "what the other tasks have staged is dropped"
    assert prices(orders) == [(0, None, None)]
    frame = orders_frame(spark, *good)
    orders.stop()
    with pytest.raises(SinkOutageError) as outage:
        write(frame, 0)
    assert outage.value.waiting.startswith(f"waiting for PostgreSQL at 127.0.0.1:{orders.port}: Connection refused")
    orders.start()
    write(frame, 0)
    assert prices(orders) == [(20, 1.0, 1.0)]


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_rows_that_are_lost_before_the_merge_are_computed_again(
    spark: SparkSession, orders: Postgres, secret: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = jdbc_stream(orders, **secret)
    whole = JdbcSink.write

    def crash(sink: JdbcSink, *more: Any) -> None:
        monkeypatch.setattr(JdbcSink, "write", whole)
        orders.stop()
        orders.start()
        sink.write(*more)

    write = opened(stream, tmp_path)
    monkeypatch.setattr(JdbcSink, "write", crash)
    frame = orders_frame(spark, *((number, "open", 1.0, 1) for number in range(20)))
    with pytest.raises(SinkOutageError, match="rows that were staged are gone"):
        write(frame, 0)
    assert prices(orders) == [(0, None, None)]
    write(frame, 0)
    assert prices(orders) == [(20, 1.0, 1.0)]
    assert leftovers(orders) == []


def test_what_a_run_that_was_killed_has_staged_is_dropped_by_the_next(
    spark: SparkSession, orders: Postgres, secret: dict[str, str], tmp_path: Path
) -> None:
    sink = open_table(jdbc_stream(orders, **secret))
    place = sink.staging_place()
    assert place is not None
    for query in QUERY, "another_query-1a2b":
        StageWriter(sink.stream, sink.address, place, f"{prefix_of(query)}0_", "").write(
            price_rows(sink, 9).to_reader()
        )
    write = opened(sink.stream, tmp_path)
    write(orders_frame(spark), 0)
    write(orders_frame(spark, (1, "open", 1.0, 1)), 1)
    ((left,),) = leftovers(orders)
    assert left.startswith(prefix_of("another_query-1a2b"))
    orders.execute(f"DROP TABLE {left}")
