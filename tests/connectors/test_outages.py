"""Systems that are away for some seconds while queries run, and come back: nothing is lost, and nothing is doubled."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS
from tests.support.kafka_broker import Broker
from tests.support.postgres import Postgres
from watersmeet import Session
from watersmeet.errors import ConnectorError, OutageError, SinkOutageError
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Started, Table

pytestmark = pytest.mark.spark
SUMS = "INSERT INTO results SELECT id, sum(v) AS n FROM o GROUP BY id"


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql("CREATE STREAM o (id BIGINT, v BIGINT)")
    yield session
    session.stop()


@pytest.fixture
def table(session: Session, postgres: Postgres, tmp_path: Path) -> Postgres:
    secret = tmp_path / "password"  # in a file: workers are older than variables of a test
    secret.write_text(postgres.password)
    postgres.execute(
        "DROP TABLE IF EXISTS results", "CREATE TABLE results (id bigint PRIMARY KEY, n bigint CHECK (n < 99))"
    )
    session.sql(
        "CREATE MUTABLE STREAM results (id BIGINT, n BIGINT) PRIMARY KEY (id) WITH (connector = 'jdbc', "
        f"url = '{postgres.url}', table = 'results', user = 'postgres', password = '${{file:{secret}}}')"
    )
    return postgres


def start(session: Session, sql: str) -> RunningQuery:
    result = session.sql(sql)
    assert isinstance(result, Started)
    return result.query


def wait_until(holds: Callable[[], bool], query: RunningQuery) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, query.report()
        query.wait(0.05)


def wait_for_batches(number: int, query: RunningQuery) -> None:
    wait_until(lambda: query.report().batches >= number, query)


def rows(table: Postgres) -> list[tuple[object, ...]]:
    return table.execute("SELECT * FROM results ORDER BY id")


def test_a_batch_is_written_once_the_database_is_back(session: Session, table: Postgres) -> None:
    session.sql("INSERT INTO o VALUES (1, 5), (2, 1)")
    query = start(session, f"{SUMS} SETTINGS sink_retry = '10 minutes'")
    wait_for_batches(1, query)
    table.stop()
    session.sql("INSERT INTO o VALUES (1, 2), (3, 1)")
    wait_until(lambda: "(attempt 3, " in query.report().waiting, query)
    said = query.report().waiting
    assert said.startswith(f"waiting for PostgreSQL at 127.0.0.1:{table.port}: ")
    assert said.endswith(" s of 10 minutes)")
    listed = session.sql("SHOW QUERIES")
    assert isinstance(listed, Table)
    assert listed.rows[0][1].startswith("waiting for PostgreSQL at")
    table.start()
    wait_for_batches(2, query)
    assert query.report().waiting == ""
    assert query.report().rows_in == {"o": 4}
    query.stop()
    assert rows(table) == [(1, 7), (2, 1), (3, 1)]


@pytest.mark.slow
def test_a_longer_outage_stops_the_query_which_goes_on_later(session: Session, table: Postgres) -> None:
    session.sql("INSERT INTO o VALUES (1, 5), (2, 1)")
    sql = f"{SUMS} SETTINGS sink_retry = '0.5 seconds'"
    query = start(session, sql)
    wait_for_batches(1, query)
    table.stop()
    session.sql("INSERT INTO o VALUES (1, 2)")
    with pytest.raises(SinkOutageError) as raised:
        query.wait(PATIENCE_SECONDS)
    for said in ("batch 1 could not be written to table results: ", "refused; query into_results_from_o has tried "):
        assert said in str(raised.value)
    assert "nothing is lost: run it again" in str(raised.value.hint)
    table.start()
    session.sql("INSERT INTO o VALUES (1, 3)")
    query = start(session, sql)
    assert query.name == "into_results_from_o", "the same text goes on"
    wait_until(lambda: query.report().rows_in == {"o": 4}, query)
    query.stop()
    assert rows(table) == [(1, 10), (2, 1)]


def test_what_the_database_refuses_is_not_tried_again(session: Session, table: Postgres) -> None:
    session.sql("INSERT INTO o VALUES (1, 100)")
    query = start(session, f"{SUMS} SETTINGS sink_retry = '1 hour'")
    with pytest.raises(ConnectorError, match="violates check constraint") as raised:
        query.wait(PATIENCE_SECONDS)
    assert not isinstance(raised.value, OutageError)


# -- Kafka -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def topics(session: Session, spark: SparkSession, broker: Broker) -> Iterator[tuple[str, str]]:
    """A topic that is read as the stream k, and one that is written as the stream sink."""
    names = (f"i{uuid.uuid4().hex}", f"o{uuid.uuid4().hex}")
    for name in names:
        broker.create_topic(spark, name, 2)
    for name, topic in zip(("k", "sink"), names, strict=True):
        options = f"connector = 'kafka', brokers = '{broker.address}', topic = '{topic}'"
        session.sql(f"CREATE STREAM {name} (id BIGINT, v BIGINT) WITH ({options})")
    yield names
    if broker.process is None:
        broker.start()


def send(spark: SparkSession, broker: Broker, topic: str, *ids: int) -> None:
    broker.produce(spark, topic, [json.dumps({"id": id, "v": 1}) for id in ids])


def ids(spark: SparkSession, broker: Broker, topic: str) -> list[int]:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    return sorted(json.loads(row.value)["id"] for row in reader.load().collect())


@pytest.mark.kafka
@pytest.mark.slow
def test_a_source_that_is_away(session: Session, spark: SparkSession, broker: Broker, topics: tuple[str, str]) -> None:
    send(spark, broker, topics[0], 1, 2)
    query = start(session, "INSERT INTO sink SELECT id, v FROM k SETTINGS source_retry = '5 minutes'")
    wait_for_batches(1, query)
    broker.stop(at_once=True)
    wait_until(lambda: "(attempt 3, " in query.report().waiting, query)
    said = query.report().waiting
    assert said.startswith(f"waiting for Kafka at {broker.address}: Connection refused (attempt 3, ")
    assert said.endswith(" s of 5 minutes)")
    broker.start()
    send(spark, broker, topics[0], 3)
    wait_for_batches(2, query)
    assert query.report().waiting == ""
    query.stop()
    assert ids(spark, broker, topics[1]) == [1, 2, 3]


@pytest.mark.kafka
@pytest.mark.slow
def test_a_source_that_is_away_for_longer(
    session: Session, spark: SparkSession, broker: Broker, topics: tuple[str, str]
) -> None:
    send(spark, broker, topics[0], 1, 2)
    sql = "INSERT INTO sink SELECT id, v FROM k SETTINGS source_retry = '1 second'"
    query = start(session, sql)
    wait_for_batches(1, query)
    broker.stop()
    with pytest.raises(OutageError, match=r"; query into_sink_from_k has tried \d+ times in \d+ s\n") as raised:
        query.wait(PATIENCE_SECONDS)
    assert "SETTINGS source_retry = " in str(raised.value.hint)
    broker.start()
    send(spark, broker, topics[0], 3)
    query = start(session, sql)
    wait_until(lambda: query.report().rows_in == {"k": 3}, query)
    assert query.report().rows_out == 1
    query.stop()
    assert ids(spark, broker, topics[1]) == [1, 2, 3]


@pytest.mark.kafka
@pytest.mark.slow
def test_a_topic_as_a_sink_takes_the_batch_once_its_broker_is_back(
    session: Session, spark: SparkSession, broker: Broker, topics: tuple[str, str]
) -> None:
    session.sql("INSERT INTO o VALUES (1, 5), (2, 1)")
    query = start(session, "INSERT INTO sink SELECT id, v FROM o SETTINGS sink_retry = '5 minutes'")
    wait_for_batches(1, query)
    broker.stop()
    session.sql("INSERT INTO o VALUES (3, 2)")
    wait_until(lambda: "(attempt 3, " in query.report().waiting, query)
    assert query.report().waiting.startswith(f"waiting for Kafka at {broker.address}: Connection refused (attempt 3")
    broker.start()
    wait_for_batches(2, query)
    query.stop()
    assert ids(spark, broker, topics[1]) == [1, 2, 3]
    assert query.report().rows_in == {"o": 3}


@pytest.mark.kafka
@pytest.mark.slow
def test_in_real_time(
    session: Session, spark: SparkSession, broker: Broker, topics: tuple[str, str], table: Postgres
) -> None:
    send(spark, broker, topics[0], 1, 2)
    sql = "INSERT INTO results SELECT id, v AS n FROM k SETTINGS mode = 'real_time', epoch = '2 seconds'"
    query = start(session, f"{sql}, sink_retry = '5 minutes'")
    wait_until(lambda: len(rows(table)) == 2, query)
    table.stop()
    send(spark, broker, topics[0], 3)
    wait_until(lambda: "(attempt 3, " in query.report().waiting, query)
    assert query.report().waiting.startswith(f"waiting for PostgreSQL at 127.0.0.1:{table.port}: ")
    table.start()
    wait_until(lambda: len(rows(table)) == 3, query)
    wait_until(lambda: not query.report().waiting, query)
    query.stop()
    assert rows(table) == [(1, 1), (2, 1), (3, 1)]
