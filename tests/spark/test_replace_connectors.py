"""`watersmeet replace` of queries from Kafka to Kafka, of a stream that is a query, and into a table with a key."""

from __future__ import annotations

import json
import random
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS
from tests.support.kafka_broker import Broker
from watersmeet.errors import CatalogError, CheckpointError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Batch, Started

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]
Pair = tuple[int, int]
INNER, LEFT = "JOIN", "LEFT JOIN"


class Topics:
    """A job over two topics, into a third."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.names = {name: f"{name}{uuid.uuid4().hex}" for name in ("o", "p", "out")}
        self.fed: list[tuple[list[Pair], list[Pair]]] = []
        for name in self.names.values():
            broker.create_topic(spark, name, 2)

    def job(self, kind: str) -> str:
        def stream(name: str, columns: str, unit: str = "") -> str:
            return (
                f"CREATE STREAM {name} ({columns}) WITH (connector = 'kafka', brokers = '{self.broker.address}',"
                f" topic = '{self.names[name]}'{unit});"
            )

        sides = "".join(
            stream(
                name,
                "id INT, n INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '20' SECONDS",
                ", event_time_unit = 's'",
            )
            for name in "op"
        )
        join = f"o {kind} p ON o.id = p.id WITHIN INTERVAL '5' SECONDS"
        return f"{sides} {stream('out', 'o INT, p INT')} INSERT INTO out SELECT o.n AS o, p.n AS p FROM {join};"

    def feed(self) -> None:
        """Append records with numbers of their own."""
        number = len(self.fed)
        chance = random.Random(number)
        sides: tuple[list[Pair], list[Pair]] = ([], [])
        for name, rows in zip("op", sides, strict=True):
            for partition in range(2):
                made = [(chance.randrange(4), 6 * number + chance.randrange(8)) for _ in range(6)]
                first = 100 * number + len(rows)
                records = [{"id": id, "n": first + i, "ts": ts} for i, (id, ts) in enumerate(made)]
                self.broker.produce(self.spark, self.names[name], list(map(json.dumps, records)), partition=partition)
                rows += made
        self.fed.append(sides)

    def run(self, text: str, mode: QueryMode = QueryMode.DRAIN) -> None:
        session = watersmeet.connect(self.spark, self.folder / "workspace")  # as in a process of its own
        for result in session.run(text, mode):
            if isinstance(result, Started):
                assert result.query.wait(PATIENCE_SECONDS)

    def results(self) -> Counter[tuple[Any, Any]]:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.broker.address)
        rows = reader.option("subscribe", self.names["out"]).load().collect()
        return Counter((row["o"], row.get("p")) for row in (json.loads(each.value) for each in rows))

    def pairs(self, first: int = 0) -> Counter[tuple[int, int]]:
        """The pairs of all rows that were fed from a time on."""
        o, p = (
            [(100 * number + i, *row) for number, sides in enumerate(self.fed) for i, row in enumerate(sides[side])]
            for side in range(2)
        )
        return Counter(
            (a[0], b[0])
            for a in o
            for b in p
            if a[1] == b[1] and abs(a[2] - b[2]) <= 5 and min(a[0], b[0]) >= 100 * first
        )


@pytest.mark.parametrize("start", ["stored", "beginning", "time"])
def test_a_new_version_over_topics_takes_over_in_one_step(
    spark: SparkSession, broker: Broker, tmp_path: Path, start: str
) -> None:
    topics = Topics(spark, broker, tmp_path)
    old, new = topics.job(INNER), topics.job(LEFT)
    topics.feed()
    topics.run(old)
    time.sleep(1.1)
    since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}Z"
    time.sleep(0.2)
    for _ in range(2):
        topics.feed()
        topics.run(old)
    before = topics.results()
    assert before == topics.pairs()
    session = watersmeet.connect(spark, tmp_path / "workspace")
    with pytest.raises(CheckpointError, match="needs a new version"):
        session.replace(new)
    (done,) = session.replace(new, start=since if start == "time" else start).queries
    assert done.is_new_version
    for mode in (QueryMode.DRAIN, QueryMode.BOUNDED):
        topics.feed()
        topics.run(new, mode)
    found = topics.results()
    assert before - found == Counter()
    matched = Counter({pair: n for pair, n in (found - before).items() if pair[1] is not None})
    first = {"stored": 3, "beginning": 0, "time": 1}[start]
    assert matched == topics.pairs(first) - before
    padded = {pair[0] for pair in found if pair[1] is None}
    assert padded
    assert not padded & {pair[0] for pair in topics.pairs(first)}


def run(spark: SparkSession, folder: Path, text: str) -> None:
    for result in watersmeet.connect(spark, folder / "workspace").run(text, QueryMode.DRAIN):
        if isinstance(result, Started):
            assert result.query.wait(PATIENCE_SECONDS)


STREAMS = """
CREATE STREAM IF NOT EXISTS o (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM IF NOT EXISTS p (id INT, w INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""


def rows_of(numbers: Sequence[int]) -> str:
    return ", ".join(f"({n % 3}, {n}, {n})" for n in numbers)


def insert(spark: SparkSession, folder: Path, numbers: Sequence[int]) -> None:
    values = rows_of(numbers)
    watersmeet.connect(spark, folder / "workspace").sql(f"INSERT INTO o VALUES {values}; INSERT INTO p VALUES {values}")


def test_a_stream_that_is_a_query_goes_on_as_another_query(spark: SparkSession, tmp_path: Path) -> None:
    def job(seconds: int, where: str = "", items: str = "o.v, p.w, o.ts") -> str:
        join = f"FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '{seconds}' SECONDS"
        return f"{STREAMS} CREATE STREAM IF NOT EXISTS both AS SELECT {items} {join} {where};"

    run(spark, tmp_path, job(0))
    insert(spark, tmp_path, range(10))
    run(spark, tmp_path, job(0))
    session = watersmeet.connect(spark, tmp_path / "workspace")
    with pytest.raises((CatalogError, CheckpointError)):
        session.replace(job(0, items="o.v, o.ts"))  # other columns
    (done,) = session.replace(job(3, "WHERE o.v <> 13")).queries
    assert not done.is_new_version
    insert(spark, tmp_path, range(10, 20))
    run(spark, tmp_path, job(3, "WHERE o.v <> 13"))
    batch = watersmeet.connect(spark, tmp_path / "workspace").sql("SELECT v, w FROM table(both)")
    assert isinstance(batch, Batch)
    found = Counter((row.v, row.w) for row in batch.frame.collect())
    assert Counter({pair: n for pair, n in found.items() if max(pair) < 10}) == Counter((n, n) for n in range(10))
    late = Counter(
        (a, b)
        for a in range(20)
        for b in range(20)
        if a % 3 == b % 3 and abs(a - b) <= 3 and max(a, b) >= 10 and a != 13
    )
    kept = Counter({pair: n for pair, n in late.items() if min(pair) >= 10})
    assert kept - found == Counter()
    assert Counter({pair: n for pair, n in found.items() if max(pair) >= 10}) - late == Counter()


@pytest.mark.parametrize("start", ["stored", "beginning"])
def test_a_new_version_into_a_table_with_a_key(spark: SparkSession, tmp_path: Path, start: str) -> None:
    table = tmp_path / "t.db"
    with closing(sqlite3.connect(table)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n BIGINT, s BIGINT)")

    def job(function: str) -> str:
        sink = f"connector = 'jdbc', url = 'jdbc:sqlite:{table}', table = 't'"
        out = f"CREATE MUTABLE STREAM t (id INT, n BIGINT, s BIGINT) PRIMARY KEY (id) WITH ({sink});"
        return f"{STREAMS} {out} INSERT INTO t SELECT id, count(*) AS n, {function}(v) AS s FROM o GROUP BY id;"

    old, new = job("sum"), job("max")
    run(spark, tmp_path, old)
    insert(spark, tmp_path, range(10))
    run(spark, tmp_path, old)
    session = watersmeet.connect(spark, tmp_path / "workspace")
    (done,) = session.replace(new, start=start, accept_counts=True).queries
    assert done.is_new_version
    insert(spark, tmp_path, [10, 12, 14])  # of keys 1, 0 and 2
    run(spark, tmp_path, new)
    taken = [*range(0 if start == "beginning" else 10, 10), 10, 12, 14]
    wanted = {id: (len(of), max(of)) for id in range(3) if (of := [n for n in taken if n % 3 == id])}
    with closing(sqlite3.connect(table)) as connection:
        found = {id: (n, s) for id, n, s in connection.execute("SELECT id, n, s FROM t")}
    assert found == wanted
