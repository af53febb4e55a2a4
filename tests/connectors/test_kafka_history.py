"""Topics read as a whole (``table(name)``) and from a point in time (``seek_to``)."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS, json_rows, run_job
from tests.support.kafka_broker import Broker
from watersmeet import QueryMode, Session
from watersmeet.errors import ConnectorError, WatersmeetError
from watersmeet.session.results import Batch, Started, Stream
from watersmeet.session.table_queries import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
# an hour ago, in whole seconds: the broker deletes what is older than a week, whenever it comes to look
MOMENT = int(time.time()) * 1000 - 3_600_000
AT_MOMENT = dt.datetime.fromtimestamp(MOMENT / 1000, dt.UTC).isoformat()


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    (tmp_path / "out").mkdir()
    session.sql(f"CREATE STREAM sink WITH (connector = 'files', path = '{tmp_path / 'out'}')")
    return session


@pytest.fixture
def topic(spark: SparkSession, broker: Broker) -> str:
    name = f"t{uuid.uuid4().hex}"
    broker.create_topic(spark, name, 2)
    return name


def options(broker: Broker, topic: str, starting: str = "latest") -> str:
    return f"WITH (connector = 'kafka', brokers = '{broker.address}', topic = '{topic}', starting = '{starting}')"


def ask(session: Session, sql: str) -> list[tuple[object, ...]]:
    result = session.sql(sql)
    assert isinstance(result, Batch)
    return rows_of(result.frame)


def test_what_a_topic_holds(session: Session, spark: SparkSession, broker: Broker, topic: str) -> None:
    session.sql(f"CREATE STREAM all_rows (id INT, v STRING) {options(broker, topic)}")
    session.sql(f"CREATE MUTABLE STREAM newest (id INT, v STRING) PRIMARY KEY (id) {options(broker, topic)}")
    assert ask(session, "SELECT count() FROM table(all_rows)") == [(0,)]
    rows = ['{"id": 1, "v": "a"}', '{"id": 2, "v": "a"}', "no json", '{"id": 1, "v": "b"}']
    broker.produce(spark, topic, rows, partition=0, timestamp_ms=MOMENT)
    # an older row, and of one moment the later one
    rows = ['{"id": 2, "v": "older"}', '{"id": 3, "v": "a"}', '{"id": 3, "v": "b"}']
    broker.produce(spark, topic, rows, partition=1, timestamp_ms=MOMENT - 500)
    asked = "SELECT count(), unix_millis(min(_tp_time)) FROM table(all_rows)"
    assert ask(session, asked) == [(6, MOMENT - 500)]
    assert ask(session, "SELECT * FROM table(newest) ORDER BY id") == [(1, "b"), (2, "a"), (3, "b")]


def test_a_topic_that_is_not_there(session: Session, broker: Broker) -> None:
    session.sql(f"CREATE STREAM gone (id INT) {options(broker, 'nowhere')}")
    with pytest.raises(ConnectorError, match=r"topic 'nowhere' does not exist.*\(line 1, column 15\)"):
        session.sql("SELECT * FROM table(gone)")


@pytest.mark.parametrize(
    "seek_to",
    [
        pytest.param("earliest", id="earliest", marks=pytest.mark.slow),
        pytest.param("latest", id="latest"),
        pytest.param(AT_MOMENT, id="time", marks=pytest.mark.slow),
    ],
)
def test_where_a_query_begins(
    session: Session, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, seek_to: str
) -> None:
    otherwise = "earliest" if seek_to == "latest" else "latest"
    session.sql(f"CREATE STREAM clicks (id INT) {options(broker, topic, otherwise)}")
    broker.produce(spark, topic, ['{"id": 1}'], partition=0, timestamp_ms=MOMENT - 1)
    broker.produce(spark, topic, ['{"id": 2}'], partition=0, timestamp_ms=MOMENT)
    # nothing of that time is in the other partition: it is read from its end
    broker.produce(spark, topic, ['{"id": 3}'], partition=1, timestamp_ms=MOMENT - 1000)
    job = f"INSERT INTO sink SELECT id FROM clicks SETTINGS seek_to = '{seek_to}'"
    run_job(session, job, QueryMode.DRAIN)
    first = {"earliest": [(1,), (2,), (3,)], "latest": []}.get(seek_to, [(2,)])
    assert json_rows(tmp_path / "out") == first
    # from then on nothing is left out, whatever time it has
    broker.produce(spark, topic, ['{"id": 4}'], partition=1, timestamp_ms=MOMENT - 1000)
    run_job(session, job, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == [*first, (4,)]


def test_a_first_batch_that_failed_begins_at_the_same_records(
    session: Session, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The end of the topic, where the query began, has moved when its first batch runs again."""
    session.sql(f"CREATE STREAM clicks (id INT) {options(broker, topic)}")
    broker.produce(spark, topic, ['{"id": 1}'], partition=0)
    (tmp_path / "out").rmdir()
    (tmp_path / "out").write_text("no folder")
    job = "INSERT INTO sink SELECT id FROM clicks"
    (started,) = session.run(job)
    assert isinstance(started, Started)
    broker.produce(spark, topic, ['{"id": 2}', '{"id": 3}'], partition=0)
    with pytest.raises(WatersmeetError):
        started.query.wait(PATIENCE_SECONDS)
    plan = json.loads(Path(started.query.checkpoint, "plan.json").read_text())
    assert plan["starts"] == {"clicks": {"0": 1, "1": 0}}
    (tmp_path / "out").unlink()
    (tmp_path / "out").mkdir()
    run_job(session, job, QueryMode.DRAIN)
    assert json_rows(tmp_path / "out") == [(2,), (3,)]


@pytest.mark.slow
def test_both_sides_of_a_join_with_itself_begin_at_one_place(
    session: Session, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    session.sql(f"CREATE STREAM clicks (id INT) {options(broker, topic)}")
    broker.produce(spark, topic, ['{"id": 1}'], partition=0)
    made = session.sql("""
        SELECT a.id, b.id AS other FROM clicks a JOIN clicks b ON a.id = b.id WITHIN INTERVAL '5' MINUTES
        SETTINGS seek_to = 'latest'
    """)
    assert isinstance(made, Stream)
    writer = made.frame.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "rows"))
    try:
        deadline = time.monotonic() + 90
        while query.lastProgress is None and time.monotonic() < deadline:
            time.sleep(0.2)
        broker.produce(spark, topic, ['{"id": 2}'], partition=0)
        while not (found := json_rows(tmp_path / "rows")) and time.monotonic() < deadline:
            assert query.isActive
            time.sleep(0.5)
        assert found == [(2, 2)]
        assert query.lastProgress is not None
        assert len(query.lastProgress["sources"]) == 1
    finally:
        query.stop()
