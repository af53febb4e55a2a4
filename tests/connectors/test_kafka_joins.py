"""Joins whose streams are Kafka topics, from broker to broker."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.kafka_broker import Broker
from watersmeet import QueryMode, Session
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Started

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
WAIT_SECONDS = 90


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    return watersmeet.connect(spark, workspace=tmp_path / "workspace")


def new_topic(spark: SparkSession, broker: Broker, partitions: int = 1) -> str:
    name = f"t{uuid.uuid4().hex}"
    broker.create_topic(spark, name, partitions)
    return name


def stream(name: str, columns: str, broker: Broker, topic: str) -> str:
    return (
        f"CREATE STREAM {name} ({columns}, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        f"WITH (connector = 'kafka', brokers = '{broker.address}', topic = '{topic}', format = 'json');"
    )


def event(second: int, **columns: object) -> str:
    return json.dumps({**columns, "ts": f"2020-01-01T00:00:{second:02}Z"})


def values_of(spark: SparkSession, broker: Broker, topic: str) -> list[dict[str, object]]:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    return [json.loads(row.value) for row in reader.load().collect()]


def started(session: Session, sql: str, mode: QueryMode) -> RunningQuery:
    (result,) = session.run(sql, mode)
    assert isinstance(result, Started)
    return result.query


def test_orders_with_payments_from_topic_to_topic(session: Session, spark: SparkSession, broker: Broker) -> None:
    """A record that is no JSON, and one in each stream from the year 2999, are quarantined."""
    orders, payments, paid = (new_topic(spark, broker, partitions=2) for _ in range(3))
    broker.produce(spark, orders, [event(1, id=1), event(2, id=2), "no json"], partition=0)
    broker.produce(spark, orders, [event(3, id=3), event(3, id=4).replace("2020", "2999")], partition=1)
    broker.produce(spark, payments, [event(4, id=1, amount=9.5), event(59, id=2, amount=1.0)], partition=1)
    broker.produce(spark, payments, [event(3, id=4, amount=9.5).replace("2020", "2999")], partition=0)
    session.sql(
        stream("orders", "id INT", broker, orders)
        + stream("payments", "id INT, amount DOUBLE", broker, payments)
        + f"CREATE STREAM paid (id INT, amount DOUBLE) WITH (connector = 'kafka', brokers = '{broker.address}', "
        f"topic = '{paid}', format = 'json', key = 'id');"
    )
    query = started(
        session,
        "INSERT INTO paid SELECT o.id, p.amount FROM orders o LEFT JOIN payments p ON o.id = p.id "
        "WITHIN INTERVAL '10' SECONDS",
        QueryMode.BOUNDED,
    )
    assert query.wait(WAIT_SECONDS)
    found = sorted(values_of(spark, broker, paid), key=lambda row: str(row["id"]))
    assert found == [{"id": 1, "amount": 9.5}, {"id": 2, "amount": None}, {"id": 3, "amount": None}]
    report = query.report()
    assert report.rows_in == {"o": 5, "p": 3}
    assert report.quarantined == {"o": 2, "p": 1}
    side = [json.loads(line) for path in session.workspace.rglob("*.jsonl") for line in path.read_text().splitlines()]
    future = [
        row for row in side if row["reason"] == "the event time is more than 24 h after the row arrived (max_future)"
    ]
    assert sorted(json.loads(row["raw"])["ts"] for row in future) == ["2999-01-01T00:00:03Z"] * 2


@pytest.mark.slow
def test_a_silent_partition_holds_time_back_until_the_idle_timeout(
    session: Session, spark: SparkSession, broker: Broker
) -> None:
    left, right, out = new_topic(spark, broker, 2), new_topic(spark, broker, 1), new_topic(spark, broker, 1)
    session.sql(
        stream("l", "id INT", broker, left)
        + stream("r", "id INT", broker, right)
        + f"CREATE STREAM unmatched (id INT) WITH (connector = 'kafka', brokers = '{broker.address}', "
        f"topic = '{out}', format = 'json');"
    )
    query = started(
        session,
        "INSERT INTO unmatched SELECT l.id FROM l LEFT ANTI JOIN r ON l.id = r.id WITHIN INTERVAL '5' SECONDS "
        "SETTINGS idle_timeout = '2 seconds'",
        QueryMode.CONTINUOUS,
    )
    try:
        # partition 1 of the left topic never says anything
        broker.produce(spark, left, [event(1, id=1), event(50, id=2)], partition=0)
        broker.produce(spark, right, [event(50, id=2)], partition=0)
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := values_of(spark, broker, out)) and time.monotonic() < deadline:
            assert query.is_active
            time.sleep(0.5)
        assert found == [{"id": 1}]
    finally:
        query.stop()
