"""The Kafka connector against a real broker."""

from __future__ import annotations

import datetime as dt
import socket
import struct
import time
import uuid
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.connectors.conftest import struct_of
from tests.support.kafka_broker import Broker
from watersmeet.columns import RECORD_COLUMNS
from watersmeet.connectors.formats.values import encode
from watersmeet.connectors.kafka.broker import partitions
from watersmeet.connectors.kafka.options import options_of
from watersmeet.connectors.kafka.sink import live_records_of, write_batch
from watersmeet.connectors.kafka.source import read_stream
from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.runtime.failures import known_error
from watersmeet.runtime.real_time.operator_task import EPOCH
from watersmeet.runtime.real_time.sinks import RunName
from watersmeet.settings.secrets import masked, resolve
from watersmeet.testing.harness import load_script

pytestmark = pytest.mark.kafka
COLUMNS = "id INT, note STRING"
SCHEMA = '{"type":"record","name":"r","fields":[{"name":"id","type":"int"},{"name":"note","type":"string"}]}'


@pytest.fixture
def topic(spark: SparkSession, broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(spark, name, 3)
    return name


def drained(frame: DataFrame, directory: Path) -> list[Row]:
    """All rows that a query over ``frame`` has found by now, with those of its earlier runs in ``directory``."""
    output = str(directory / "output")
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start(output)
    try:
        assert query.awaitTermination(60)
        assert query.exception() is None
        return frame.sparkSession.read.parquet(output).orderBy("_seq").collect()
    finally:
        query.stop()


@pytest.mark.sample(2)
def test_records_come_with_position_time_and_reason(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.produce(spark, topic, ['{"id": 1, "note": "a"}', '{"id": 99999999999}'], partition=2, timestamp_ms=1500)
    broker.produce(spark, topic, [b"\xff", None, '{"id": 2}'], partition=0, timestamp_ms=2500)
    options = {"topic": topic, "brokers": broker.address, "format": "json"}
    frame = read_stream(spark, struct_of(COLUMNS), options)
    assert frame.columns == ["id", "note", "_bad", "_raw", "_text", "_part", "_seq", "_tp_time", *RECORD_COLUMNS]
    assert not frame.schema["_part"].nullable
    rows = drained(frame, tmp_path)
    assert [(row.id, row.note, row._bad, row._raw) for row in rows] == [
        (None, None, "not valid UTF-8", "/w=="),
        (None, None, "the record has no value", ""),
        (2, None, None, None),
        (1, "a", None, None),
        (None, None, "id: 99999999999 does not fit INT", '{"id": 99999999999}'),
    ]
    assert [row._part for row in rows] == [f"{topic}-0"] * 3 + [f"{topic}-2"] * 2
    assert [struct.unpack(">iq", row._seq) for row in rows] == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    assert rows[0]._tp_time.astimezone(dt.UTC) == dt.datetime(1970, 1, 1, 0, 0, 2, 500000, tzinfo=dt.UTC)
    broker.produce(spark, topic, ['{"id": 3}'], partition=1)
    again = read_stream(spark, struct_of(COLUMNS), options)
    assert [row.id for row in drained(again, tmp_path)] == [None, None, 2, 3, 1, None]


def test_partitions_are_those_of_the_topic(spark: SparkSession, broker: Broker, topic: str) -> None:
    options = {"topic": topic, "kafka.bootstrap.servers": f"127.0.0.1:1,{broker.address}"}
    assert partitions(spark, options) == (f"{topic}-0", f"{topic}-1", f"{topic}-2")


def test_avro_values(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, "x"), (2, "y")], COLUMNS).coalesce(1)
    values = [bytes(row.v) for row in rows.select(encode(rows, "avro", {"avro.schema": SCHEMA}).alias("v")).collect()]
    broker.produce(spark, topic, [*values, b"nonsense"], partition=0)
    options = {"topic": topic, "brokers": broker.address, "format": "avro", "avro.schema": SCHEMA}
    found = drained(read_stream(spark, struct_of(COLUMNS), options), tmp_path)
    assert [(row.id, row.note, row._bad) for row in found] == [
        *((1, "x", None), (2, "y", None)),
        (None, None, "not one avro value of this schema"),
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("format", ["json", "avro"])
def test_what_is_written_is_read_back(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, format: str
) -> None:
    options = {"topic": topic, "brokers": broker.address, "format": format, "key": "id"}
    options |= {"avro.schema": SCHEMA} if format == "avro" else {}
    frame = spark.createDataFrame([(1, "x"), (2, "y")], COLUMNS)
    write_batch(frame, 7, options, key="q")
    write_batch(frame.where("id = 2"), 8, {**options, "key": "id, note"})
    rows = drained(read_stream(spark, struct_of(COLUMNS), options), tmp_path)
    assert sorted((row.id, row.note, row._bad) for row in rows) == [(1, "x", None), (2, "y", None), (2, "y", None)]
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
    records = reader.option("subscribe", topic).option("includeHeaders", "true").load()
    told = records.select(
        F.col("key").cast("string"),
        F.transform("headers", lambda h: F.concat(h.key, F.lit("="), h.value.cast("string"))),
    ).collect()
    assert sorted((key, tuple(headers)) for key, headers in told) == [
        ("1", ("_batch=7", "_query=q")),
        ("2", ("_batch=7", "_query=q")),
        ('{"id":2,"note":"y"}', ("_batch=8",)),
    ]


def test_a_sink_names_a_key_that_is_no_column(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "x")], COLUMNS)
    with pytest.raises(ConfigError, match="no column is named 'ide'"):
        write_batch(frame, 0, {"topic": "t", "brokers": "127.0.0.1:1", "key": "ide"})


def test_missing_topic_and_broker_are_one_sentence_in_time(spark: SparkSession, broker: Broker) -> None:
    for options, message in [
        ({"topic": "nowhere", "brokers": broker.address}, "topic 'nowhere' does not exist on the Kafka broker at"),
        ({"topic": "t", "brokers": "127.0.0.1:1"}, "no Kafka broker can be reached at 127.0.0.1:1"),
        ({"topic": "t", "brokers": "no-such-host.invalid:9092"}, "no Kafka broker can be reached at no-such-host"),
    ]:
        begun = time.monotonic()
        with pytest.raises(ConnectorError) as raised:
            partitions(spark, options)
        assert time.monotonic() - begun < 10
        assert raised.value.message.startswith(message)
        assert "\n" not in raised.value.message
        assert "\tat " not in str(raised.value)
        assert "Exception" not in str(raised.value)


def test_a_server_that_is_no_broker_is_given_up_in_time(spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(ConnectorError, match="did not answer in time"):
            partitions(spark, {"topic": "t", "brokers": f"127.0.0.1:{silent.getsockname()[1]}"})
        assert time.monotonic() - begun < 10


@pytest.mark.slow
def test_writing_to_a_missing_topic_is_one_sentence(spark: SparkSession, broker: Broker) -> None:
    frame = spark.createDataFrame([(1, "x")], COLUMNS)
    options = {"topic": "nowhere", "brokers": broker.address, "kafka.max.block.ms": "2000"}
    with pytest.raises(ConnectorError, match="topic 'nowhere' does not exist"):
        write_batch(frame, 0, options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brokers": "h:1"}, "needs the option topic"),
        ({"topic": "t"}, "needs the option brokers"),
        ({"topic": "t", "brokers": "h:1", "topics": "x"}, "no option 'topics'"),
        (
            {"topic": "t", "brokers": "h:1", "starting": "now"},
            "option starting = 'now': input should be 'earliest' or 'latest'",
        ),
        ({"topic": "t", "brokers": "h:1", "max_offsets_per_trigger": "0"}, "option max_offsets_per_trigger"),
        ({"topic": "t", "brokers": "h:1", "kafka.bootstrap.servers": "h:2"}, "two names of one option"),
        ({"topic": "t", "brokers": "h:1", "kafka.auto.offset.reset": "x"}, "cannot be set"),
        ({"topic": "a b", "brokers": "h:1"}, "option topic"),
        ({"topic": "t", "brokers": "h:1", "client": "x"}, "no option 'client'"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options_of(options)


def test_options_become_what_they_mean() -> None:
    given = {"topic": "t", "kafka.bootstrap.servers": "h:1,i:2", "key": "a, b", "kafka.client.id": "me", "csv.sep": ";"}
    options = options_of(given)
    assert (options.brokers, options.key) == ("h:1,i:2", ("a", "b"))
    assert (options.client, options.format_options) == ({"kafka.client.id": "me"}, {"csv.sep": ";"})


def test_addresses_are_checked(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="'h' is not host:port"):
        partitions(spark, {"topic": "t", "brokers": "h"})


def test_secrets_are_resolved_late_and_never_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("from-file\n")
    monkeypatch.setenv("WM_TEST_SECRET", "from-env")
    client = {
        "kafka.sasl.jaas.config": 'x password="${env:WM_TEST_SECRET}";',
        "kafka.ssl.keystore.password": f"${{file:{path}}}",
        "kafka.ssl.key.password": "plain",
        "kafka.client.id": "me",
    }
    options = options_of({"topic": "t", "brokers": "h:1", **client})
    assert options.client == client
    assert [resolve(value) for value in client.values()] == ['x password="from-env";', "from-file", "plain", "me"]
    printed = f"{options} {options!r} {masked(client)}"
    assert not any(secret in printed for secret in ("from-env", "from-file", "plain"))
    assert "me" in printed
    for missing, message in [
        ("${env:WM_TEST_NONE}", "no variable WM_TEST_NONE"),
        ("${file:/none/at/all}", "cannot be read"),
    ]:
        with pytest.raises(ConfigError, match=message):
            resolve(missing)


def test_in_real_time_a_null_in_the_key_of_a_result_is_an_error_and_no_record(spark: SparkSession) -> None:
    streams, _ = load_script(
        "CREATE MUTABLE STREAM held (id INT, note STRING) PRIMARY KEY (id) "
        "WITH (connector = 'kafka', brokers = 'h:1', topic = 't'); SELECT * FROM held"
    )
    stream = streams["held"]
    way = live_records_of(spark, RunName("q", 1, {}, "", ()), options=stream.options, changing=stream)
    columns = f"{COLUMNS}, _tp_delta INT, {EPOCH} BIGINT, holds BOOLEAN"
    rows = spark.createDataFrame([(1, "x", 1, 0, True), (None, "y", 1, 0, False), (None, None, 1, 0, True)], columns)
    key, *_ = way.record(rows.drop("holds"), F.col("holds"))
    assert [row[0] for row in rows.limit(2).where("holds").select(key.cast("string")).collect()] == ['{"id":1}']
    assert len(rows.where("NOT holds").select(key).collect()) == 1
    with pytest.raises(PySparkException) as raised:
        rows.select(key).collect()
    error = known_error(str(raised.value))
    assert isinstance(error, ConnectorError)
    assert error.message == "held: column id of its PRIMARY KEY is NULL in a result"
    assert error.hint == "leave such rows out (WHERE … IS NOT NULL), or choose a key without id"
