"""Batches in transactions, with a real broker: what consumers of committed records see, whatever befalls a writer."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from tests.support.kafka_broker import Broker
from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.connectors.connector import Writing
from watersmeet.connectors.kafka.connector import KafkaConnector
from watersmeet.connectors.kafka.sink import write_batch
from watersmeet.connectors.registry import open_sink
from watersmeet.errors import ConfigError, ConnectorError, SinkOutageError, UnsupportedError
from watersmeet.records import kafka_transactions
from watersmeet.records.kafka_producer import RECORD_SCHEMA, Sending
from watersmeet.records.kafka_transactions import TransactionalWriter

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
PARTITIONS = 3


@pytest.fixture
def topic(spark: SparkSession, broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(spark, name, PARTITIONS)
    return name


def writer(broker: Broker, topic: str, batch: int, query: str = "q") -> TransactionalWriter:
    settings = {"bootstrap.servers": broker.address}
    return TransactionalWriter(topic, settings, settings, {"_batch": str(batch)}, f"watersmeet-{query}-{topic}", batch)


def bodies(*values: str) -> pa.RecordBatch:
    data = pa.array([value.encode() for value in values], pa.binary())
    return pa.RecordBatch.from_arrays([data, data], schema=RECORD_SCHEMA)


def write(writer: TransactionalWriter, *values: str) -> int:
    (written,) = writer.write([bodies(*values)])
    return int(written["written"][0].as_py())


def seen(broker: Broker, topic: str, isolation: str = "read_committed") -> list[str]:
    """What a consumer reads until the end of the topic."""
    settings = {"bootstrap.servers": broker.address, "group.id": uuid.uuid4().hex, "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, ends = [], set[int | None]()
    try:
        for _ in range(1_000):
            for message in consumer.consume(100, 0.1):
                if (error := message.error()) is None:
                    found.append((message.value() or b"").decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.add(message.partition())
            if len(ends) == PARTITIONS:
                return sorted(found)
    finally:
        consumer.close()
    raise AssertionError("the topic has no end")


def test_a_batch_that_is_written_again_is_there_once(broker: Broker, topic: str) -> None:
    assert write(writer(broker, topic, 0), "a", "b") == 2
    assert write(writer(broker, topic, 0), "a", "b") == 0
    assert write(writer(broker, topic, 1), "c") == 1
    (nothing,) = writer(broker, topic, 2).write([])
    assert nothing.to_pydict() == {"written": [0]}
    assert write(writer(broker, topic, 3), "d") == 1
    assert write(writer(broker, topic, 3), "d") == 0
    assert write(writer(broker, topic, 0, "another query"), "e") == 1
    assert seen(broker, topic) == ["a", "b", "c", "d", "e"]


_DIES = """
import os, sys
import pyarrow as pa
from watersmeet.records import kafka_transactions
from watersmeet.records.kafka_transactions import TransactionalWriter
address, topic, moment = sys.argv[1:]
class Dying(kafka_transactions.Sending):
    def send(self, *args):
        super().send(*args)
        self.producer.flush()
        if moment == "records sent":
            os._exit(9)
kafka_transactions.Sending = Dying
settings = {"bootstrap.servers": address}
writer = TransactionalWriter(topic, settings, settings, {}, f"watersmeet-q-{topic}", 7)
data = pa.array([b"x", b"y"], pa.binary())
(written,) = writer.write([pa.RecordBatch.from_arrays([data, data], names=["key", "value"])])
os._exit(9)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "again"), [("records sent", 2), ("committed", 0)])
def test_a_writer_that_dies(broker: Broker, topic: str, moment: str, again: int) -> None:
    done = subprocess.run([sys.executable, "-c", _DIES, broker.address, topic, moment], timeout=60, check=False)
    assert done.returncode == 9
    assert seen(broker, topic, "read_uncommitted") == ["x", "y"]
    assert write(writer(broker, topic, 7), "x", "y") == again
    assert seen(broker, topic) == ["x", "y"]
    assert len(seen(broker, topic, "read_uncommitted")) == 2 + again


def test_an_attempt_that_still_runs_when_the_next_one_begins(broker: Broker, topic: str) -> None:
    first = writer(broker, topic, 7)

    def rows() -> Iterator[pa.RecordBatch]:
        yield bodies("x")
        assert write(writer(broker, topic, 7), "x", "y") == 2
        yield bodies("y")

    with pytest.raises(ConnectorError, match="another run of the query has begun to write it"):
        list(first.write(rows()))
    assert seen(broker, topic) == ["x", "y"]


def test_a_commit_whose_answer_does_not_come(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is made, but its writer hears nothing of it: the next attempt finds it."""

    class Deaf:
        """A producer to which commits seem to get no answer."""

        def __init__(self, producer: Any) -> None:
            self._producer = producer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def commit_transaction(self, seconds: float) -> None:
            self._producer.commit_transaction(seconds)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    class Heard(Sending):
        def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
            super().__init__(topic, settings)
            self.producer: Any = Deaf(self.producer)

    with monkeypatch.context() as patched:
        patched.setattr(kafka_transactions, "Sending", Heard)
        with pytest.raises(SinkOutageError, match="Kafka did not take batch 7"):
            write(writer(broker, topic, 7), "x")
    assert write(writer(broker, topic, 7), "x") == 0
    assert seen(broker, topic) == ["x"]


@pytest.mark.slow
def test_a_batch_of_several_tasks_is_one_transaction(spark: SparkSession, broker: Broker, topic: str) -> None:
    rows = spark.range(1_000).repartition(4)
    options = {"topic": topic, "brokers": broker.address, "delivery": "exactly_once"}
    for number in (0, 0, 1):
        write_batch(rows, number, options, key=f"q-{topic}-{number:012d}")
    found = [json.loads(value)["id"] for value in seen(broker, topic)]
    assert sorted(found) == sorted([*range(1_000)] * 2)


def stream(**options: str) -> StreamDef:
    given = {"brokers": "127.0.0.1:1", "topic": "t", "delivery": "exactly_once", **options}
    return StreamDef(name="s", columns=(StreamColumn(name="id", type="INT"),), connector="kafka", options=given)


def test_what_cannot_be_written_exactly_once_is_refused(tmp_path: Path) -> None:
    writing = Writing(stream(), tmp_path, changelog=False, show=lambda *_: None)
    with pytest.raises(
        UnsupportedError, match="delivery = 'exactly_once' makes a transaction of a batch, and real time"
    ):
        KafkaConnector().open_live_sink(writing)
    with pytest.raises(ConfigError) as raised:
        open_sink(stream(**{"kafka.acks": "1"}), tmp_path, changelog=False, show=lambda *_: None)
    assert "kafka.acks" in str(raised.value)
    with pytest.raises(ConfigError, match="option delivery = 'twice'"):
        open_sink(stream(delivery="twice"), tmp_path, changelog=False, show=lambda *_: None)
