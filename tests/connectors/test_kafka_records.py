"""Records of Kafka that workers read and decode: the same results as if Spark did, whatever is in the topics."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import json_rows, run_job
from tests.support.kafka_broker import Broker
from watersmeet import QueryMode, Session
from watersmeet.connectors.kafka import connector as kafka
from watersmeet.errors import ConnectorError
from watersmeet.records.kafka import KafkaRange, read_range
from watersmeet.runtime import source_frames, worker_records
from watersmeet.session.results import Batch

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

STREAMS = """
CREATE STREAM o (id BIGINT, amount DOUBLE, note STRING, ts TIMESTAMP,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS) {o};
CREATE STREAM p (id BIGINT, paid DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS) {p};
CREATE MUTABLE STREAM c (id BIGINT, name STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (id) {c};
CREATE STREAM d (id BIGINT, name STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (id) {d}
  SETTINGS mode = 'versioned_kv';
CREATE STREAM joined WITH (connector = 'files', path = '{folder}/joined');
CREATE STREAM named WITH (connector = 'files', path = '{folder}/named', changelog = 'true');
CREATE STREAM versions WITH (connector = 'files', path = '{folder}/versions');
"""
JOBS = """
INSERT INTO joined SELECT o.id, o.amount, o.note, p.paid, o.ts AS o_ts FROM o LEFT JOIN p ON o.id = p.id
  WITHIN INTERVAL '10' SECONDS WHERE o.amount > 1;
INSERT INTO named SELECT p.id, p.paid, c.name FROM p LEFT JOIN c ON p.id = c.id
  WITHIN INTERVAL '1' HOUR SETTINGS late_rows = 'keep';
INSERT INTO versions SELECT p.id, p.paid, d.name FROM p LEFT JOIN d FOR SYSTEM_TIME AS OF p.ts ON p.id = d.id;
"""


@pytest.fixture
def topics(spark: SparkSession, broker: Broker) -> Callable[[int], str]:
    def new(partitions: int) -> str:
        name = f"t{uuid.uuid4().hex}"
        broker.create_topic(spark, name, partitions)
        return name

    return new


@pytest.fixture
def read_by_workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources of the queries so far that workers read."""
    seen: list[str] = []

    def spy(source: Any, projection: Any, packing: Any, *given: Any, **more: Any) -> Any:
        seen.append(packing.spec.source)
        return real(source, projection, packing, *given, **more)

    real = worker_records.decoded_in_workers
    monkeypatch.setattr(source_frames, "decoded_in_workers", spy)
    return seen


def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "worker_records", lambda *given, **options: None)


def options(broker: Broker, topic: str, format: str = "json", more: str = "") -> str:
    return f"WITH (connector = 'kafka', brokers = '{broker.address}', topic = '{topic}', format = '{format}'{more})"


def moment(second: float) -> str:
    return f"2026-01-01T00:{int(second) // 60:02}:{second % 60:09.6f}Z"


def records(r: random.Random, kind: str, first: int, count: int) -> list[bytes | None]:
    """Good and bad records, mostly in the order of their times."""
    found: list[bytes | None] = []
    for number in range(first, first + count):
        row: dict[str, Any] = {"id": r.randint(1, 20), "ts": moment(max(0, number + r.randint(-8, 3)))}
        more = {"o": {"amount": r.choice((0.5, 2, 3.25)), "note": r.choice(("x", "é", None, "NaN, Inf"))}}
        more |= {"p": {"paid": r.random()}, "c": {"name": r.choice("abc")}}
        row |= more.get(kind, {})
        if kind == "d":
            image = {**row, "name": r.choice("abc")}
            op = r.choice("crud")
            millis = 1_767_225_600_000 + number * 1000
            row = {"op": op, "before": image if op in "ud" else None, "after": image, "ts_ms": millis}
        text = json.dumps(row)
        bad = ("no json", "", "{}", text + text, text[:-1], text.replace("2026", "x"), json.dumps({**row, "id": "x"}))
        found.append((r.choice(bad) if r.random() < 0.1 else text).encode())
        if kind in "cd" and r.random() < 0.1:
            found.append(None)
    return found


def results(folder: Path, queries: Sequence[Any]) -> tuple[Any, ...]:
    files = [path for query in queries for path in Path(query.checkpoint, "side").glob("*.jsonl")]
    texts = [line for path in files for line in path.read_text().splitlines()]
    side = sorted(json.dumps({**json.loads(text), "at": None}, sort_keys=True) for text in texts)
    counts = [(report.rows_in, report.quarantined, report.late) for report in (query.report() for query in queries)]
    return json_rows(folder / "joined"), json_rows(folder / "named"), json_rows(folder / "versions"), side, counts


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [("workers", "spark"), ("spark", "workers")])
def test_workers_and_spark_read_the_same(
    spark: SparkSession,
    broker: Broker,
    topics: Callable[[int], str],
    tmp_path: Path,
    read_by_workers: list[str],
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    then: str,
) -> None:
    """Each goes on from the other's checkpoint."""
    names = {kind: topics(2) for kind in "opcd"}
    formats = dict.fromkeys("opc", "json") | {"d": "debezium-json"}
    limit = ", max_offsets_per_trigger = '40'"
    streams = {kind: options(broker, name, formats[kind], limit) for kind, name in names.items()}
    r = random.Random(24)

    def session_in(folder: Path) -> Session:
        session = watersmeet.connect(spark, workspace=folder / "workspace")
        session.sql(STREAMS.format(folder=folder, **streams))
        return session

    def run(session: Session, way: str) -> list[Any]:
        with monkeypatch.context() as patch:
            if way == "spark":
                by_spark(patch)
            return run_job(session, JOBS, QueryMode.DRAIN)

    mixed, plain = session_in(tmp_path / "mixed"), session_in(tmp_path / "plain")
    for start, way in ((0, first), (30, then)):
        for kind, topic in names.items():
            for partition in (0, 1):
                broker.produce(spark, topic, records(r, kind, start, 30), partition=partition)
        read_by_workers.clear()
        of_mixed = results(tmp_path / "mixed", run(mixed, way))
        assert (len(read_by_workers) == 6) == (way == "workers")
        of_spark = results(tmp_path / "plain", run(plain, "spark"))
        assert of_mixed == of_spark
        assert all(of_spark)


@pytest.mark.parametrize("way", ["workers", pytest.param("spark", marks=pytest.mark.slow)])
def test_where_a_record_stood_and_its_headers(
    spark: SparkSession,
    broker: Broker,
    topics: Callable[[int], str],
    tmp_path: Path,
    read_by_workers: list[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """Also of a record that Spark decodes in either case: its number is written in another way."""
    topic = topics(2)
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    said: list[list[tuple[str, str | bytes | None]]] = [
        [("trace", b"a1")],
        [],
        [("trace", b"\xff"), ("trace", None)],
        [],
    ]
    for partition in (0, 1):
        for number, headers in enumerate(said):
            text = json.dumps({"id": number, "ts": moment(number)}).replace('"id": 3', '"id": 3e0')
            producer.produce(topic, text, partition=partition, headers=headers)
    producer.flush(30)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(
        f"CREATE STREAM e (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {options(broker, topic)};"
        f"CREATE STREAM out WITH (connector = 'files', path = '{tmp_path}/out')"
    )
    if way == "spark":
        by_spark(monkeypatch)
    columns = "a.id, b._tp_partition AS p, b._tp_offset AS o, to_json(b._tp_headers) AS h"
    join = f"SELECT {columns} FROM e a JOIN e b ON a._tp_offset = b._tp_offset AND a._tp_partition = b._tp_partition"
    run_job(session, f"INSERT INTO out {join} WHERE b._tp_offset >= 0", QueryMode.DRAIN)
    assert bool(read_by_workers) == (way == "workers")
    found = json_rows(tmp_path / "out")
    stored = session.sql("SELECT id, _tp_partition, _tp_offset, to_json(_tp_headers) FROM table(e)")
    assert isinstance(stored, Batch)
    texts = ['[{"key":"trace","value":"YTE="}]', None, '[{"key":"trace","value":"/w=="},{"key":"trace"}]', None]
    expected = sorted((n, p, n, texts[n]) for p in (0, 1) for n in range(3))
    assert sorted(row for row in map(tuple, stored.frame.collect()) if row[0] != 3) == expected
    assert sorted(row for row in found if row[0] != 3) == expected


def test_transactions_and_gaps(spark: SparkSession, broker: Broker, topics: Callable[[int], str]) -> None:
    """Of a range that ends with marks of transactions, which are no records, only committed records are read."""
    topic = topics(1)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for value, commits in (("1", True), ("2", False), ("3", True), ("4", False)):
        producer.begin_transaction()
        producer.produce(topic, value, key=value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    settings = {"bootstrap.servers": broker.address}

    def values(start: int, end: int) -> list[bytes]:
        return [
            value.as_py() for part in read_range(KafkaRange(topic, 0, start, end), settings) for value in part.values
        ]

    assert values(0, 8) == [b"1", b"3"]
    assert values(0, 4) == [b"1"]
    assert values(5, 8) == []
    assert values(4, 5) == [b"3"]


def drain_self_join(session: Session) -> None:
    run_job(
        session,
        "INSERT INTO out SELECT a.id FROM e a JOIN e b ON a.id = b.id WITHIN INTERVAL '1' SECOND",
        QueryMode.DRAIN,
    )


@pytest.fixture
def joined(spark: SparkSession, broker: Broker, topics: Callable[[int], str], tmp_path: Path) -> tuple[Session, str]:
    """A session whose stream ``e`` has been joined with itself, and its topic of one partition and four records."""
    topic = topics(1)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(
        f"CREATE STREAM e (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {options(broker, topic)};"
        f"CREATE STREAM out WITH (connector = 'files', path = '{tmp_path}/out')"
    )
    broker.produce(spark, topic, [json.dumps({"id": n, "ts": moment(n)}) for n in range(4)])
    drain_self_join(session)
    assert json_rows(tmp_path / "out") == [(0,), (1,), (2,), (3,)]
    return session, topic


def delete(broker: Broker, topic: str, partition: int, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    (deleted,) = admin.delete_records([TopicPartition(topic, partition, before)]).values()
    deleted.result(30)


@pytest.mark.sample(2)
def test_records_that_are_gone_are_an_error(
    spark: SparkSession, broker: Broker, joined: tuple[Session, str], tmp_path: Path
) -> None:
    session, topic = joined
    broker.produce(spark, topic, [json.dumps({"id": n, "ts": moment(n)}) for n in range(4, 8)])
    delete(broker, topic, 0, 6)
    with pytest.raises(
        ConnectorError, match=r"records of t\w+-0 from offset 4 on are gone.*\nhint: start the query anew"
    ):
        drain_self_join(session)


@pytest.mark.sample(2)
def test_a_new_partition_begins_at_its_first_record(
    spark: SparkSession, broker: Broker, joined: tuple[Session, str], tmp_path: Path
) -> None:
    session, topic = joined
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    (added,) = admin.create_partitions([NewPartitions(topic, 2)]).values()
    added.result(30)
    broker.produce(spark, topic, [json.dumps({"id": n, "ts": moment(n)}) for n in (4, 5, 6)], partition=1)
    delete(broker, topic, 1, 1)
    drain_self_join(session)
    assert json_rows(tmp_path / "out") == [(0,), (1,), (2,), (3,), (5,), (6,)]
