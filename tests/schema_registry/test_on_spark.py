"""Streams of Kafka with a schema registry, on Spark: a real broker and a real registry."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS, json_rows, run_job
from tests.support.kafka_broker import Broker
from tests.support.schema_registry import RegistryServer
from watersmeet import QueryMode, Session
from watersmeet.errors import ConfigError, ConnectorError, OutageError, SinkOutageError
from watersmeet.records.schema_registry.framing import header
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Batch, Started
from watersmeet.session.table_queries import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

FORMATS = ["avro", "protobuf", "json"]
COLUMNS = (
    "id INT, price DECIMAL(10, 2), ts TIMESTAMP, local TIMESTAMP_NTZ, day DATE, ok BOOLEAN, raw BINARY, f FLOAT, "
    "tags ARRAY<STRING>, of STRUCT<a: BIGINT, b: MAP<STRING, DOUBLE>>, WATERMARK FOR ts AS ts"
)
ROWS = """
    (1, 12.34, TIMESTAMP'2026-01-01 00:00:00Z', TIMESTAMP_NTZ'2026-01-01 00:00:00.5', DATE'2026-01-01', true, X'00FF',
     1.5, array('a', 'b'), named_struct('a', 5, 'b', map('x', 1.5))),
    (2, NULL, TIMESTAMP'2026-01-01 00:00:01Z', NULL, NULL, NULL, NULL, NULL, array(), NULL)
"""
UNFRAMED = "not in the wire format of a schema registry, which begins with a zero byte and a schema's number"
FIRST = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
SECOND = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "unit", "type": "string", "default": "EUR"}],
}


class World:
    """A session with topics of its own."""

    def __init__(self, spark: SparkSession, broker: Broker, registry: RegistryServer, folder: Path) -> None:
        self.spark, self.broker, self.registry, self.folder = spark, broker, registry, folder
        self.session: Session = watersmeet.connect(spark, workspace=folder / "workspace")

    def topic(self, partitions: int = 2) -> str:
        name = f"t{uuid.uuid4().hex}"
        self.broker.create_topic(self.spark, name, partitions)
        return name

    def options(self, topic: str, format: str, more: str = "") -> str:
        return (
            f"WITH (connector = 'kafka', brokers = '{self.broker.address}', topic = '{topic}', format = '{format}', "
            f"'registry.url' = '{self.registry.url}'{more})"
        )

    def files(self, name: str) -> str:
        return f"CREATE STREAM {name} WITH (connector = 'files', path = '{self.folder / name}', format = 'json');"

    def send(self, topic: str, schema: Any, *rows: dict[str, Any], number: int | None = None) -> int:
        """Append rows as Avro; the schema is registered unless it has a number."""
        number = self.registry.register(f"{topic}-value", schema) if number is None else number
        values = []
        for row in rows:
            out = io.BytesIO(header(number))
            out.seek(0, io.SEEK_END)
            fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
            values.append(out.getvalue())
        self.broker.produce(self.spark, topic, values)
        return number

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.broker.address)
        found = reader.option("subscribe", topic).load().orderBy("partition", "offset").collect()
        return [(each.key and bytes(each.key), each.value and bytes(each.value)) for each in found]

    def reasons(self) -> list[str]:
        found = [line for path in self.folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
        return sorted(json.loads(line)["reason"] for line in found)

    def start(self, sql: str, *, real_time: bool = False) -> RunningQuery:
        (query,) = [each.query for each in self.session.run(sql, real_time=real_time) if isinstance(each, Started)]
        return query


@pytest.fixture
def world(spark: SparkSession, broker: Broker, registry: RegistryServer, tmp_path: Path) -> Iterator[World]:
    found = World(spark, broker, registry, tmp_path)
    yield found
    found.session.stop()


def wait_for(holds: Callable[[], bool], query: RunningQuery) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, query.report()
        query.wait(0.2)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_all_types_from_topic_to_topic(world: World, format: str) -> None:
    """What is written is read back; records that cannot be read are quarantined, by workers and by Spark."""
    topic = world.topic()
    run_job(
        world.session,
        f"CREATE STREAM src ({COLUMNS}); INSERT INTO src VALUES {ROWS};"
        f"CREATE STREAM k ({COLUMNS}) {world.options(topic, format)}; INSERT INTO k SELECT * FROM src;",
    )
    latest = world.registry.ask(f"/subjects/{topic}-value/versions/latest")
    number = latest["id"]
    assert latest.get("schemaType", "AVRO") == format.upper()
    written = [value for _, value in world.records(topic)]
    assert [value is not None and value.startswith(header(number)) for value in written] == [True, True]
    world.broker.produce(
        world.spark, topic, ["plain", None, header(999_999) + b"abc", header(number) + b"\xff\xff\xff"]
    )
    queries = run_job(
        world.session,
        f"{world.files('all_columns')} {world.files('some')} INSERT INTO all_columns SELECT * FROM k;"
        "INSERT INTO some SELECT id, price FROM k WHERE length(repeat('a', id)) > 1 SETTINGS late_rows = 'late'",
    )
    assert json_rows(world.folder / "all_columns") == [
        (
            *(1, 12.34, "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.500", "2026-01-01", True, "AP8=", 1.5),
            *(["a", "b"], {"a": 5, "b": {"x": 1.5}}),
        ),
        (2, None, "2026-01-01T00:00:01.000Z", None, None, None, None, None, [], None),
    ]
    assert json_rows(world.folder / "some") == [(2, None)]
    for query in queries:
        assert query.report().quarantined == {"k": 4}
    wrong = {
        "avro": "the record ends within a value",
        "protobuf": "the path to the message cannot be read",
        "json": "not valid UTF-8",
    }[format]
    expected = [
        UNFRAMED,
        "the record has no value",
        "schema 999999: the registry has no schema 999999",
        f"schema {number}: {wrong}",
    ]
    assert world.reasons() == sorted(2 * expected)


def test_schemas_that_change_within_a_topic(world: World) -> None:
    """Each record is read by its own schema; what a record lacks is the default of the newest one."""
    topic = world.topic(1)
    first = world.send(topic, FIRST, {"id": 1, "gone": "x"})
    world.send(topic, SECOND, {"id": 2**40, "unit": "CHF"})
    world.send(topic, FIRST, {"id": 3, "gone": "x"}, number=first)
    world.session.sql(f"CREATE STREAM k (id BIGINT, unit STRING) {world.options(topic, 'avro')}")
    world.session.sql(f"CREATE STREAM old (id INT, gone STRING) {world.options(topic, 'avro', version(1))}")
    run_job(
        world.session,
        f"{world.files('new_rows')} {world.files('old_rows')} INSERT INTO new_rows SELECT id, unit FROM k;"
        "INSERT INTO old_rows SELECT id, gone FROM old",
    )
    assert json_rows(world.folder / "new_rows") == [(1, "EUR"), (2**40, "CHF"), (3, "EUR")]
    assert json_rows(world.folder / "old_rows") == [(1, "x"), (3, "x")]
    (reason,) = world.reasons()
    assert reason.endswith(
        f"its records cannot be read by schema {first} ({topic}-value, version 1): id: long cannot be read as int"
    )


def version(number: int) -> str:
    return f", 'registry.version' = '{number}'"


@pytest.mark.slow
def test_upserts_are_read_back(world: World) -> None:
    """A retraction is a record without a value, also where the schema takes no NULL."""
    topic = world.topic(1)
    schema = {
        "type": "record",
        "name": "Stock",
        "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "long"}],
    }
    number = world.registry.register(f"{topic}-value", schema)
    table = f"(item STRING, n BIGINT) PRIMARY KEY (item) {world.options(topic, 'avro', NOT_REGISTERED)}"
    run_job(
        world.session,
        f"CREATE STREAM src (item STRING, v BIGINT) PRIMARY KEY (item) SETTINGS mode = 'changelog_kv';"
        f"CREATE MUTABLE STREAM stock {table};"
        "INSERT INTO src (item, v, _tp_delta) VALUES ('a', 1, 1), ('b', 5, 1);"
        "INSERT INTO stock SELECT item, sum(v) AS n FROM src GROUP BY item EMIT CHANGELOG;",
        QueryMode.DRAIN,
    )
    assert sorted(world.records(topic)) == [
        (b'{"item":"a"}', header(number) + b"\x02a\x02"),
        (b'{"item":"b"}', header(number) + b"\x02b\x0a"),
    ]
    run_job(
        world.session,
        "INSERT INTO src (item, v, _tp_delta) VALUES ('a', 1, -1);"
        "INSERT INTO stock SELECT item, sum(v) AS n FROM src GROUP BY item EMIT CHANGELOG;",
        QueryMode.DRAIN,
    )
    assert world.records(topic)[-1] == (b'{"item":"a"}', None)
    read = world.session.sql("SELECT item, n FROM table(stock)")
    assert isinstance(read, Batch)
    assert rows_of(read.frame) == [("b", 5)]
    # a key in the wire format, which as text would be another key
    producer = Producer({"bootstrap.servers": world.broker.address})
    producer.produce(topic, None, header(number) + b"\x02b")
    producer.produce(topic, None, b"b")
    producer.flush(30)
    del producer
    out = f"WITH (connector = 'files', path = '{world.folder / 'out'}', changelog = 'true')"
    (query,) = run_job(world.session, f"CREATE STREAM out {out}; INSERT INTO out SELECT item FROM stock")
    assert query.report().quarantined == {"stock": 1}
    assert world.reasons() == [
        "the record's key: in the wire format of a schema registry, but keys are read as text or JSON"
    ]


NOT_REGISTERED = ", 'registry.auto_register' = 'false'"


@pytest.mark.parametrize(
    ("columns", "more", "kind", "said"),
    [
        ("id STRING, gone STRING", "", ConnectorError, "does not take the schema: "),
        ("id INT, other STRING", NOT_REGISTERED, ConfigError, "column other is not in the schema, which has id, gone"),
        (
            "id INT",
            NOT_REGISTERED,
            ConfigError,
            "the schema's field gone has no column, and neither a default nor null",
        ),
        ("id INT, gone STRING", NOT_REGISTERED + version(7), ConnectorError, "has no version 7 of "),
    ],
)
def test_a_sink_whose_schema_does_not_fit(
    world: World, columns: str, more: str, kind: type[Exception], said: str
) -> None:
    topic = world.topic(1)
    world.registry.register(f"{topic}-value", FIRST)
    world.registry.ask(f"/config/{topic}-value", {"compatibility": "BACKWARD"}, "PUT")
    world.session.sql(
        f"CREATE STREAM src ({columns}); CREATE STREAM k ({columns}) {world.options(topic, 'avro', more)}"
    )
    with pytest.raises(kind) as raised:
        run_job(world.session, "INSERT INTO k SELECT * FROM src")
    assert said in str(raised.value)


def test_a_source_whose_subject_or_column_is_not_there(world: World) -> None:
    topic = world.topic(1)
    world.session.sql(f"CREATE STREAM k (id INT, nr INT) {world.options(topic, 'avro')}; {world.files('out')}")
    with pytest.raises(ConnectorError, match=f"has no subject {topic}-value"):
        run_job(world.session, "INSERT INTO out SELECT id FROM k")
    world.registry.register(f"{topic}-value", FIRST)
    with pytest.raises(ConfigError, match=r"column nr is not in schema \d+ \(t.*-value, version 1\)"):
        run_job(world.session, "INSERT INTO out SELECT id FROM k")


@pytest.mark.slow
def test_a_registry_that_is_away_is_waited_for(world: World) -> None:
    """Records of a schema that no process has asked for yet wait, and none is quarantined or lost."""
    topic = world.topic(1)
    world.send(topic, FIRST, {"id": 1, "gone": "x"})
    unknown = SECOND | {"doc": topic}  # registries have one number for equal schemas
    second = world.registry.register(f"{topic}-value", unknown)
    world.session.sql(f"CREATE STREAM k (id BIGINT) {world.options(topic, 'avro')}; {world.files('out')}")
    query = world.start("INSERT INTO out SELECT id FROM k SETTINGS source_retry = '10 minutes'")
    wait_for(lambda: json_rows(world.folder / "out") == [(1,)], query)
    world.registry.stop(at_once=True)
    try:
        world.send(topic, unknown, {"id": 2, "unit": "CHF"}, number=second)
        wait_for(lambda: "the schema registry at " in query.report().waiting, query)
    finally:
        world.registry.start()
    wait_for(lambda: json_rows(world.folder / "out") == [(1,), (2,)], query)
    assert query.report().quarantined == {}
    query.stop()


def test_a_query_does_not_begin_without_its_registry(world: World) -> None:
    topic = world.topic(1)
    world.session.sql(
        f"CREATE STREAM src (id INT); {world.files('out')} CREATE STREAM k (id INT) WITH (connector = 'kafka', "
        f"topic = '{topic}', brokers = '{world.broker.address}', format = 'avro', 'registry.url' = 'http://127.0.0.1:1')"
    )
    with pytest.raises(OutageError, match=r"the schema registry at http://127\.0\.0\.1:1 cannot be reached"):
        run_job(world.session, "INSERT INTO out SELECT id FROM k")
    with pytest.raises(SinkOutageError, match=r"the schema registry at http://127\.0\.0\.1:1 cannot be reached"):
        run_job(world.session, "INSERT INTO k SELECT id FROM src")


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_in_real_time(world: World, format: str) -> None:
    """Bad records are quarantined; the registry stops and comes back."""
    source, target = world.topic(), world.topic()
    world.session.sql(f"""
        CREATE STREAM src (id INT, tags ARRAY<STRING>);
        CREATE STREAM k (id INT, tags ARRAY<STRING>) {world.options(source, format)};
        CREATE STREAM r (id INT, tags ARRAY<STRING>) {world.options(target, format)};
        INSERT INTO src VALUES (1, array('a')), (2, NULL)""")
    run_job(world.session, "INSERT INTO k SELECT id, tags FROM src")
    world.broker.produce(world.spark, source, ["plain"])
    sql = "INSERT INTO r SELECT id, tags FROM k SETTINGS epoch = '2 seconds', source_retry = '10 minutes'"
    query = world.start(sql, real_time=True)
    wait_for(lambda: len(world.records(target)) == 2, query)
    wait_for(lambda: query.report().quarantined == {"k": 1}, query)
    query.stop()
    run_job(world.session, f"{world.files('out')} INSERT INTO out SELECT id, tags FROM r")
    nothing: list[str] | None = [] if format == "protobuf" else None
    assert json_rows(world.folder / "out") == [(1, ["a"]), (2, nothing)]
    assert world.reasons() == [UNFRAMED]
