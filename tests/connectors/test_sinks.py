"""Changelogs in the sinks that take them by key: Kafka, embedded streams, and whole queries."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet
from tests.connectors.conftest import struct_of
from tests.support.jobs import batch_answer, json_lines, run_job, write_lines
from tests.support.kafka_broker import Broker
from tests.support.postgres import Postgres
from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.cli.explain import explain_script
from watersmeet.connectors.embedded.connector import embedded_log
from watersmeet.connectors.kafka.source import read_stored
from watersmeet.connectors.registry import open_sink
from watersmeet.connectors.stream_schema import stored_schema
from watersmeet.errors import ConnectorError, UnsupportedError

pytestmark = pytest.mark.spark
Record = tuple[str | None, str | None]


def target(
    connector: str, columns: str, key: str, mode: StreamMode = StreamMode.VERSIONED, **options: str
) -> StreamDef:
    """A stream with a primary key; columns such as ``id INT, a DECIMAL(3:1)``, with a colon for a comma in a type."""
    given = [column.split() for column in columns.split(",")]
    return StreamDef(
        name="s",
        columns=tuple(StreamColumn(name=name, type=kind.replace(":", ",")) for name, kind in given),
        connector=connector,
        options=options,
        mode=mode,
        primary_key=tuple(key.split()),
    )


def write(spark: SparkSession, sink: StreamDef, frame: DataFrame, number: int, workspace: Path) -> None:
    """A batch, and once more, as after a failure."""
    opened = open_sink(sink, workspace, changelog=True, show=lambda *_: None)
    for _ in range(2):
        opened.write(frame, number, f"q-{number:012d}")


# -- Kafka -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(spark: SparkSession, broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(spark, name, 2)
    return name


def records(spark: SparkSession, broker: Broker, topic: str) -> list[Record]:
    """Key and value of all records, in order per key."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    rows = (
        reader.load().orderBy("partition", "offset").select(F.col("key").cast("string"), F.col("value").cast("string"))
    )
    return [(row.key, row.value) for row in rows.collect()]


def compacted(found: Sequence[Record]) -> dict[str | None, str]:
    """What compaction finally leaves of a topic."""
    return {key: value for key, value in dict(found).items() if value is not None}


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_has_the_newest_row_of_each_key_and_no_value_for_a_deleted_one(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = target("kafka", "id INT, region STRING, v STRING", "region id", brokers=broker.address, topic=topic)
    schema = "id INT, region STRING, v STRING, _tp_delta TINYINT"
    first = [(1, "eu", "a", 1), (2, 'u"s', None, 1), (3, "eu", "c", 1)]
    write(spark, sink, spark.createDataFrame(first, schema), 0, tmp_path)
    left = '{"region":"u\\"s","id":2}'
    assert compacted(records(spark, broker, topic)) == {
        '{"region":"eu","id":1}': '{"id":1,"region":"eu","v":"a"}',
        '{"region":"eu","id":3}': '{"id":3,"region":"eu","v":"c"}',
        left: '{"id":2,"region":"u\\"s","v":null}',
    }
    second = [(1, "eu", "a", -1), (1, "eu", "b", 1), (3, "eu", "c", -1), (4, "eu", "d", 1), (4, "eu", "d", -1)]
    write(spark, sink, spark.createDataFrame(second, schema).repartition(3), 1, tmp_path)
    found = records(spark, broker, topic)
    assert len(found) == 2 * 3 + 2 * 2, "each batch came twice, and has a record for each key that changed"
    assert found.count(('{"region":"eu","id":3}', None)) == 2
    assert compacted(found) == {
        '{"region":"eu","id":1}': '{"id":1,"region":"eu","v":"b"}',
        left: '{"id":2,"region":"u\\"s","v":null}',
    }
    with pytest.raises(ConnectorError) as raised:
        write(spark, sink, spark.createDataFrame([(5, "eu", "a", 1), (5, "eu", "b", 1)], schema), 2, tmp_path)
    assert str(raised.value) == (
        "s has the PRIMARY KEY (region, id), and the query emits several rows for one key\n"
        "region = eu, id = 5: 2 rows after one batch\n"
        "hint: choose a PRIMARY KEY that is unique in the results"
    )
    assert len(records(spark, broker, topic)) == 10


KEYS: list[tuple[str, object]] = [
    ("BIGINT", 9007199254740993),
    ("STRING", ' a"b\\c{é'),
    ("BOOLEAN", True),
    ("DOUBLE", 0.1),
    ("DECIMAL(38:9)", Decimal("12345678901234567890.123456789")),
    ("DATE", dt.date(2026, 2, 28)),
    ("TIMESTAMP", dt.datetime(2026, 2, 28, 10, 0, 0, 123456)),  # noqa: DTZ001 - as Spark hands it over in UTC
    ("TIMESTAMP_NTZ", dt.datetime(2026, 2, 28, 10, 0, 0, 123456)),  # noqa: DTZ001
    ("BINARY", b"\x00\xff"),
]


@pytest.mark.kafka
def test_the_same_definition_reads_what_was_written(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    names = [f"k{number}" for number in range(len(KEYS))]
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, KEYS, strict=True))
    options = {"brokers": broker.address, "topic": topic}
    sink = target("kafka", f"{columns}, x INT", " ".join(names), brokers=broker.address, topic=topic)
    key = tuple(value for _, value in KEYS)
    schema = f"{columns.replace(':', ',')}, x INT, _tp_delta TINYINT"
    for number, rows in enumerate([[(*key, 7, 1)], [(*key, 7, -1)]]):
        write(spark, sink, spark.createDataFrame(rows, schema), number, tmp_path)
    read = read_stored(spark, struct_of(schema.rpartition(",")[0]), options, changing=sink).orderBy("_seq")
    found = read.select(*names, "x", "_tp_delta", "_bad").collect()
    assert [tuple(row) for row in found] == [(*key, 7, 1, None)] * 2 + [(*key, None, -1, None)] * 2


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_takes_a_changelog_row_by_row_where_that_is_asked_for(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    sink = StreamDef(
        name="s",
        columns=(StreamColumn(name="id", type="INT"),),
        connector="kafka",
        options={"brokers": broker.address, "topic": topic, "changelog": "true", "key": "id"},
    )
    rows = spark.createDataFrame([(1, 1), (1, -1), (2, 1)], "id INT, _tp_delta TINYINT").coalesce(1)
    opened = open_sink(sink, tmp_path, changelog=True, show=lambda *_: None)
    opened.write(rows, 0, "q-000000000000")
    assert sorted(records(spark, broker, topic)) == [
        ("1", '{"id":1,"_tp_delta":-1}'),
        ("1", '{"id":1,"_tp_delta":1}'),
        ("2", '{"id":2,"_tp_delta":1}'),
    ]


# -- embedded streams --------------------------------------------------------------------------------------------------

OLD, NEW = ("a", 20), ("b", 10)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (StreamMode.VERSIONED, [(1, 1, "b", 10), (-1, 2, "x", 5)]),
        (StreamMode.CHANGELOG, [(-1, 1, "a", 20), (1, 1, "b", 10), (-1, 2, "x", 5)]),
    ],
)
def test_an_embedded_stream_takes_what_a_batch_comes_to(
    spark: SparkSession, tmp_path: Path, mode: StreamMode, expected: list[tuple[object, ...]]
) -> None:
    sink = target("embedded", "id INT, v STRING, ts INT", "id", mode)
    rows = [(1, *NEW, 1), (1, *OLD, -1), (2, "x", 5, -1), (3, "y", 6, 1), (3, "y", 6, -1)]
    write(spark, sink, spark.createDataFrame(rows, "id INT, v STRING, ts INT, _tp_delta TINYINT"), 0, tmp_path)
    stored = embedded_log(sink, tmp_path).read_stored(spark, stored_schema(sink)).orderBy("id", "_seq")
    assert [(row._tp_delta, row.id, row.v, row.ts) for row in stored.collect()] == expected


def test_versions_that_are_only_appended_all_stay(spark: SparkSession, tmp_path: Path) -> None:
    sink = target("embedded", "id INT, ts INT", "id")
    opened = open_sink(sink, tmp_path, changelog=False, show=lambda *_: None)
    opened.write(spark.createDataFrame([(1, 5, 1), (1, 6, 1)], "id INT, ts INT, _tp_delta TINYINT"), 0, "q-0")
    assert embedded_log(sink, tmp_path).read_stored(spark, stored_schema(sink)).count() == 2


# -- whole queries -----------------------------------------------------------------------------------------------------

ORDERS = [(1, "ada", 10), (2, "bob", 11), (3, "cyd", 12), (4, "dan", 13), (5, "eve", 14)]
PAYMENTS = [(1, "paid", 15), (2, "void", 12), (4, "paid", 99), (5, "late", 90)]
SOURCES = """
CREATE STREAM orders (id INT, who STRING, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR) WITH (
  connector = 'files', path = '{0}/orders', format = 'json', event_time_unit = 's');
CREATE STREAM payments (id INT, status STRING, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR) WITH (
  connector = 'files', path = '{0}/payments', format = 'json', event_time_unit = 's', max_files_per_trigger = 1);
"""
#: A padded row is replaced by its match; one whose match fails the test in WHERE is retracted and not replaced.
QUERY = """INSERT INTO results SELECT o.who, o.id, p.status FROM orders o
LEFT JOIN payments p ON o.id = p.id WITHIN INTERVAL '30' SECONDS
WHERE p.status IS NULL OR p.status <> 'void' EMIT CHANGELOG SETTINGS buckets = 1"""
ANSWER = """SELECT who, o.id, p.status FROM orders o LEFT JOIN payments p ON o.id = p.id AND abs(p.ts - o.ts) <= 30
WHERE p.status IS NULL OR p.status <> 'void'"""


def run(spark: SparkSession, folder: Path, columns: str, sink: str) -> watersmeet.Session:
    """Orders come in the first batch, which pads them, their payments in the second."""
    write_lines(folder / "orders" / "0.json", json_lines(ORDERS, ("id", "who", "ts")), age=0)
    for number, payments in enumerate([[(0, "void", 0)], PAYMENTS]):
        lines = json_lines(payments, ("id", "status", "ts"))
        write_lines(folder / "payments" / f"{number}.json", lines, age=number)
    session = watersmeet.connect(spark, workspace=folder / "workspace")
    session.sql(SOURCES.format(folder) + f"CREATE MUTABLE STREAM results ({columns}) PRIMARY KEY (order_id) {sink};")
    run_job(session, QUERY)
    return session


def answer() -> list[tuple[object, ...]]:
    expected = batch_answer(ANSWER, orders=(("id", "who", "ts"), ORDERS), payments=(("id", "status", "ts"), PAYMENTS))
    assert expected == [("ada", 1, "paid"), ("cyd", 3, None), ("dan", 4, None), ("eve", 5, None)]
    return expected


COLUMNS = "customer STRING, order_id BIGINT, status STRING"


@pytest.mark.slow
def test_a_left_join_into_postgresql(spark: SparkSession, postgres: Postgres, tmp_path: Path) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS joined",
        "CREATE TABLE joined (order_id bigint PRIMARY KEY, status text, customer text)",
        "CREATE OR REPLACE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO changes VALUES (TG_OP); RETURN NULL; END $$",
        "DROP TABLE IF EXISTS changes",
        "CREATE TABLE changes (what text)",
        "CREATE TRIGGER told AFTER INSERT OR UPDATE OR DELETE ON joined FOR EACH ROW EXECUTE FUNCTION told()",
    )
    options = f"url = '{postgres.url}', table = 'joined', user = 'postgres', password = '${{env:LOOKUP_TEST_PASSWORD}}'"
    session = run(spark, tmp_path, COLUMNS, f"WITH (connector = 'jdbc', {options})")
    found = postgres.execute("SELECT customer, order_id, status FROM joined ORDER BY customer")
    assert found == answer()
    assert {what for (what,) in postgres.execute("SELECT DISTINCT what FROM changes")} == {"INSERT", "UPDATE", "DELETE"}
    with pytest.raises(UnsupportedError, match=r"results is a sink \(jdbc\): it cannot be read"):
        session.sql("SELECT order_id FROM results")


@pytest.mark.slow
def test_a_left_join_into_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, COLUMNS, f"WITH (connector = 'delta', path = '{tmp_path}/table')")
    table = DeltaTable(tmp_path / "table")
    assert sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist()) == answer()
    metrics = [commit.get("operationMetrics", {}) for commit in table.history()]
    assert sum(int(each.get("num_target_rows_deleted", 0)) for each in metrics) == 1


@pytest.mark.slow
def test_a_left_join_into_an_embedded_stream(spark: SparkSession, tmp_path: Path) -> None:
    session = run(spark, tmp_path, COLUMNS, "")
    results = session.streams.catalog.require("results")
    rows = embedded_log(results, session.workspace).read_stored(spark, stored_schema(results)).orderBy("_seq").collect()
    newest = {row.order_id: row for row in rows}
    held = [(row.customer, row.order_id, row.status) for row in newest.values() if row._tp_delta == 1]
    assert sorted(held) == answer()
    assert [(row.customer, row.status) for row in newest.values() if row._tp_delta == -1] == [("bob", None)]


@pytest.mark.slow
@pytest.mark.kafka
def test_a_left_join_into_a_compacted_topic(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    options = f"connector = 'kafka', brokers = '{broker.address}', topic = '{topic}'"
    run(spark, tmp_path, COLUMNS, f"WITH ({options})")
    found = records(spark, broker, topic)
    assert ('{"order_id":2}', None) in found
    assert sorted(tuple(json.loads(value).values()) for value in compacted(found).values()) == answer()


def test_a_sink_that_only_appends_is_refused_by_explain_and_before_the_query_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path)
    session.sql(
        "CREATE STREAM a (id INT, ts TIMESTAMP); CREATE STREAM b (id INT, ts TIMESTAMP); CREATE STREAM log (id INT)"
    )
    insert = "INSERT INTO log SELECT a.id FROM a LEFT JOIN b ON a.id = b.id WITHIN INTERVAL '1' MINUTE EMIT {}"
    for statement in "EXPLAIN " + insert, insert:
        with pytest.raises(UnsupportedError, match=r"log \(embedded\) only appends.*\(line 1, column"):
            session.sql(statement.format("CHANGELOG"))
    session.sql("EXPLAIN " + insert.format("FINAL"))
    with pytest.raises(UnsupportedError, match=r"log \(embedded\) only appends.*\(line 1, column"):
        list(explain_script(insert.format("CHANGELOG"), tmp_path))
    (plan,) = explain_script(insert.format("FINAL"), tmp_path)
    assert plan.startswith("EMIT FINAL")
    assert not (tmp_path / "queries").exists()


def test_a_key_that_is_not_unique_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path)
    session.sql(
        "CREATE STREAM a (id INT, ts TIMESTAMP); CREATE STREAM b (id INT, n INT, ts TIMESTAMP);"
        "CREATE MUTABLE STREAM results (id INT, n INT) PRIMARY KEY (id);"
        "INSERT INTO a VALUES (1, TIMESTAMP'2026-01-01 10:00:00');"
        "INSERT INTO b VALUES (1, 5, TIMESTAMP'2026-01-01 10:00:00'), (1, 6, TIMESTAMP'2026-01-01 10:00:00')"
    )
    with pytest.raises(ConnectorError, match=r"results has the PRIMARY KEY \(id\), and the query emits several rows"):
        run_job(
            session,
            "INSERT INTO results SELECT a.id, b.n FROM a LEFT JOIN b ON a.id = b.id WITHIN INTERVAL '1' MINUTE "
            "EMIT CHANGELOG",
        )
