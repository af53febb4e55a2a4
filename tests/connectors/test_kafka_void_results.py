"""Results of epochs that did not commit, taken back from a topic of upserts."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.real_time.topic_results import Result, count, results, rows_of_topic
from tests.support.kafka_broker import Broker
from watersmeet.connectors.kafka.sink import take_back
from watersmeet.runtime.real_time.sinks import RunName

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
QUERY = "q-1"
Headers = dict[str, str | bytes | None]


class Topic:
    """A topic of two partitions, written by runs of a query."""

    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        self.spark, self.broker, self.name = spark, broker, f"t{uuid.uuid4().hex}"
        broker.create_topic(spark, self.name, 2)
        self.options = {"topic": self.name, "brokers": broker.address, "format": "json"}

    def write(self, run: int, epoch: int, *changes: tuple[int, int | None, int | None], query: str = QUERY) -> None:
        """Append changes: a key, the row that leaves it, and the one that comes."""
        producer = Producer({"bootstrap.servers": self.broker.address, "enable.idempotence": True})
        marks: Headers = {
            "_batch": str(epoch),
            "_query": f"{query}-{epoch:012d}",
            "_run": str(run),
            "_runs": f"{run}:0",
        }
        for key, old, new in changes:
            name, part = json.dumps({"k": key}), key % 2
            if old is not None:
                producer.produce(self.name, None, name, part, headers={**marks, "_was": _row(key, old)})
            if new is not None:
                producer.produce(self.name, _row(key, new), name, part, headers=marks)
        assert producer.flush(30) == 0

    def take_back(self, run: int, firsts: dict[int, int]) -> None:
        take_back(self.spark, RunName(QUERY, run, firsts, "", ()), None, self.options)

    def records(self) -> list[Result]:
        return results(self.broker, self.name, 2)

    def rows(self) -> set[tuple[int, int]]:
        return rows_of_topic(self.records())


def _row(key: int, value: int) -> str:
    return json.dumps({"k": key, "v": value})


@pytest.fixture
def topic(spark: SparkSession, broker: Broker) -> Topic:
    return Topic(spark, broker)


def test_each_key_gets_the_row_back_that_it_had_when_the_epoch_began(topic: Topic) -> None:
    topic.write(0, 0, (1, None, 10), (2, None, 20), (3, None, 30), (4, None, 40))
    topic.write(0, 1, (1, 10, 11), (1, 11, 12), (2, 20, None), (5, None, 50), (6, None, 60), (6, 60, None))
    topic.write(9, 7, (4, 40, 41), query="another")  # not ours
    assert topic.rows() == {(1, 12), (3, 30), (4, 41), (5, 50)}
    topic.take_back(1, {0: 0, 1: 1})
    assert topic.rows() == {(1, 10), (2, 20), (3, 30), (4, 41)}
    written = [each for each in topic.records() if each.headers.get("_run") == "1"]
    assert {each.headers["_batch"] for each in written} == {"1"}
    given_back = [each for each in written if each.value is not None]
    assert [json.loads(each.headers["_was"]) for each in given_back] == [each.value for each in given_back] != []
    assert {each.headers["_runs"] for each in written} == {"0:0 1:1"}


def test_a_run_that_ends_as_the_one_before_is_taken_back_too(topic: Topic) -> None:
    topic.write(0, 0, (1, None, 10))
    topic.write(0, 1, (1, 10, 11), (2, None, 20))
    topic.take_back(1, {0: 0, 1: 1})
    topic.write(1, 1, (1, 10, 15), (3, None, 30))
    topic.take_back(2, {0: 0, 2: 1})
    assert topic.rows() == {(1, 10)}
    topic.write(2, 1, (1, 10, 16))
    topic.write(2, 2, (1, 16, 17), (2, None, 21))
    topic.take_back(3, {0: 0, 2: 1, 3: 2})  # the second run has committed epoch 1
    assert topic.rows() == {(1, 16)}


def test_a_row_that_was_given_back_may_be_the_only_one_left(topic: Topic) -> None:
    """Compaction may have taken what the first run wrote."""
    topic.take_back(1, {0: 0, 1: 1})
    producer = Producer({"bootstrap.servers": topic.broker.address})
    marks: Headers = {"_batch": "1", "_query": f"{QUERY}-{1:012d}", "_run": "1", "_was": _row(1, 10)}
    producer.produce(topic.name, _row(1, 10), json.dumps({"k": 1}), 1, headers=marks)
    assert producer.flush(30) == 0
    topic.write(1, 1, (1, 10, 11))
    topic.take_back(2, {0: 0, 2: 1})
    assert topic.rows() == {(1, 10)}


def test_records_of_others_may_have_any_headers(topic: Topic, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": topic.broker.address})
    producer.produce(topic.name, b"\xff", headers={"_batch": "many", "_query": f"{QUERY}-x", "_run": b"\xff\xfe"})
    producer.produce(topic.name, None, key=b"k")
    assert producer.flush(30) == 0
    topic.take_back(1, {0: 0, 1: 0})
    assert count(broker, topic.name, 2) == 2
