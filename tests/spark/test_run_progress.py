"""How much of bounded and draining runs is done, on real Spark, over the sources that say what there is."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import watersmeet
from tests.support.kafka_broker import Broker
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.run_progress import InputProgress, RunProgress, Unit
from watersmeet.session.results import Started
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

PATIENCE_SECONDS = 120
FILES, ROWS = 3, 40
STREAMS = """
CREATE STREAM o (id BIGINT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/o', max_files_per_trigger = '1', event_time_unit = 's');
CREATE STREAM d (id BIGINT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'delta', path = '{0}/d', max_files_per_trigger = '1', event_time_unit = 's');
CREATE STREAM Kept (id BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (id BIGINT, n BIGINT) WITH (connector = 'blackhole');
INSERT INTO Kept VALUES (1, 1), (2, 2);
"""
OF_THREE = """INSERT INTO r SELECT o.id, Kept.ts FROM o JOIN d ON o.id = d.id WITHIN INTERVAL '1' HOUR
JOIN Kept ON o.id = Kept.id WITHIN INTERVAL '1' HOUR;"""


def write(folder: Path) -> None:
    (folder / "o").mkdir()
    for number in range(FILES):
        lines = [{"id": id, "ts": number} for id in range(ROWS)]
        (folder / "o" / f"{number}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
        write_deltalake(folder / "d", pa.table({"id": range(ROWS), "ts": [number] * ROWS}), mode="append")


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Session:
    write(tmp_path)
    found = watersmeet.connect(spark, workspace=tmp_path / "ws")
    for _ in found.run(STREAMS.format(tmp_path)):
        pass
    return found


def start(session: Session, text: str, mode: QueryMode) -> RunningQuery:
    (started,) = session.run(text, mode)
    assert isinstance(started, Started)
    return started.query


def progress(query: RunningQuery) -> RunProgress:
    found = query.report().progress
    assert found is not None
    return found


def read(query: RunningQuery) -> dict[str, tuple[int | None, int]]:
    assert all(each.unit is Unit.BYTES for each in progress(query).inputs)
    return {each.name: (each.ahead, each.done) for each in progress(query).inputs}


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_a_run_says_what_it_has_read_and_one_that_goes_on_what_of_the_rest(session: Session, tmp_path: Path) -> None:
    lines = {path.name: path.stat().st_size for path in (tmp_path / "o").iterdir()}
    parts = [path.stat().st_size for path in (tmp_path / "d").glob("*.parquet")]
    (segment,) = (tmp_path / "ws" / "streams" / "kept").glob("*.parquet")
    everything = {"o": sum(lines.values()), "d": sum(parts), "Kept": segment.stat().st_size}
    query = start(session, OF_THREE, QueryMode.DRAIN)
    for _ in range(PATIENCE_SECONDS * 20):
        if query.report().batches and progress(query).inputs[0].done:
            break
        threading.Event().wait(0.05)
    query.stop()
    first = read(query)
    assert {name: ahead for name, (ahead, _) in first.items()} == everything
    assert 0 < (progress(query).fraction or 0) < 1
    committed = len(list((tmp_path / "ws" / "queries" / query.name / "spark" / "commits").glob("[0-9]*")))
    assert 1 <= committed < FILES

    query = start(session, OF_THREE, QueryMode.BOUNDED)
    assert query.wait(PATIENCE_SECONDS)
    rest = read(query)
    assert rest["Kept"] == (0, 0)
    log = tmp_path / "ws" / "queries" / query.name / "spark" / "sources" / "0"
    taken = [json.loads((log / str(n)).read_text().splitlines()[1])["path"] for n in range(committed)]
    left = everything["o"] - sum(lines[path.rpartition("/")[2]] for path in taken)
    assert rest["o"] == (left, left)
    assert (rest["d"][0] or 0) < everything["d"]
    assert rest["d"][0] == rest["d"][1]
    assert progress(query).fraction == 1
    assert progress(query).text.startswith("100% done: ")


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_a_run_of_one_batch_counts_its_tasks(session: Session, tmp_path: Path) -> None:
    (segment,) = (tmp_path / "ws" / "streams" / "kept").glob("*.parquet")
    query = start(session, "INSERT INTO r SELECT id, count(*) FROM Kept GROUP BY id", QueryMode.BOUNDED)
    before = progress(query)
    assert before.tasks is not None
    assert query.wait(PATIENCE_SECONDS)
    tasks = query._meter._tasks
    assert tasks is not None
    tasks._due = 0.0
    assert query._query is not None
    counted = tasks.look(query._query)
    assert counted.done == counted.planned > 2
    assert progress(query).tasks is None
    assert progress(query).fraction == 1
    assert read(query) == {"Kept": (segment.stat().st_size, segment.stat().st_size)}


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_of_a_topic_records_are_counted(session: Session, spark: SparkSession, broker: Broker) -> None:
    topic = f"t{uuid.uuid4().hex}"
    broker.create_topic(spark, topic, 2)
    for partition in range(2):
        broker.produce(spark, topic, [json.dumps({"id": id, "ts": id}) for id in range(6)], partition=partition)
    session.sql(
        "CREATE STREAM k (id BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'kafka', "
        f"brokers = '{broker.address}', topic = '{topic}', starting = 'earliest', max_offsets_per_trigger = '4')"
    )
    text = "INSERT INTO r SELECT id, ts FROM k"
    query = start(session, text, QueryMode.DRAIN)
    assert query.wait(PATIENCE_SECONDS)
    assert progress(query).inputs == (InputProgress("k", Unit.RECORDS, 12, 12),)
    broker.produce(spark, topic, [json.dumps({"id": 9, "ts": 9})] * 3, partition=1)
    query = start(session, text, QueryMode.DRAIN)
    assert query.wait(PATIENCE_SECONDS)
    assert progress(query).inputs == (InputProgress("k", Unit.RECORDS, 3, 3),)


def test_a_query_without_an_end_has_none(session: Session) -> None:
    query = start(session, "INSERT INTO r SELECT id, ts FROM Kept", QueryMode.CONTINUOUS)
    assert query.report().progress is None
    query.stop()
