"""Batches that workers write to a real broker, beside those that Spark writes."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.support.kafka_broker import Broker
from watersmeet.connectors.kafka.sink import write_batch
from watersmeet.errors import ConnectorError
from watersmeet.records import kafka_producer
from watersmeet.records.kafka_producer import RECORD_SCHEMA, KafkaWriter

pytestmark = pytest.mark.kafka
BY_SPARK = {"kafka.acks": "1"}  # librdkafka writes with acks=all alone


@pytest.fixture
def topic(spark: SparkSession, broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(spark, name, 3)
    return name


def records(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


@pytest.mark.slow
def test_workers_write_what_spark_writes_to_the_same_partitions(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    rows = spark.createDataFrame([("", 0), ("ä€😀", 1), *((f"k{i}", i) for i in range(300))], "k STRING, v INT")
    options = {"topic": topic, "brokers": broker.address, "key": "k"}
    write_batch(rows, 1, options, key="q")
    write_batch(rows, 2, {**options, **BY_SPARK}, key="q")

    def of_batch(number: int) -> list[Row]:
        found = records(spark, broker, topic).where(F.col("headers")[0]["value"] == F.lit(str(number)).cast("binary"))
        return found.select("partition", "key", "value", F.col("headers")[1].alias("h")).orderBy("key").collect()

    by_workers = of_batch(1)
    assert len(by_workers) == 302
    assert by_workers == of_batch(2)


@pytest.mark.slow
def test_rows_without_a_key_are_spread(spark: SparkSession, broker: Broker, topic: str) -> None:
    rows = spark.range(150_000).coalesce(1)  # more than a producer keeps at once
    write_batch(rows, 1, {"topic": topic, "brokers": broker.address})
    found = records(spark, broker, topic).select("key", "partition", F.col("value").cast("string").alias("value"))
    assert found.where("key IS NOT NULL").count() == 0
    assert found.select("partition").distinct().count() == 3
    assert (found.count(), found.distinct().count()) == (150_000, 150_000)


@pytest.mark.parametrize("most_bytes", ["1048576", "4000000"], ids=["the client refuses", "the broker refuses"])
def test_a_batch_after_one_that_failed_has_its_own_rows_alone(
    spark: SparkSession, broker: Broker, topic: str, most_bytes: str
) -> None:
    settings = {"bootstrap.servers": broker.address, "message.max.bytes": most_bytes}
    values = pa.array([b"before", b"x" * 2_000_000, b"behind"])
    with pytest.raises(ConnectorError, match=f"Kafka did not take a record for topic '{topic}': .*too large"):
        list(KafkaWriter(topic, settings, {"_batch": "1"}).write([bodies(values)]))
    (written,) = KafkaWriter(topic, settings, {"_batch": "2"}).write([bodies(pa.array([b"a", None]))])
    assert written.to_pydict() == {"written": [2]}
    found = records(spark, broker, topic).where(F.col("headers")[0]["value"] == F.lit("2").cast("binary"))
    assert {row.value for row in found.collect()} == {b"a", None}


def test_a_topic_that_is_not_there(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_producer, "_ANSWER_SECONDS", 1.0)
    writer = KafkaWriter("nowhere", {"bootstrap.servers": broker.address}, {})
    with pytest.raises(ConnectorError, match=r"Kafka did not take records for topic 'nowhere': .*Unknown topic"):
        list(writer.write([bodies(pa.array([b"a"]))]))


def bodies(values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(len(values), pa.binary()), values], schema=RECORD_SCHEMA)
