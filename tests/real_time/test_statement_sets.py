"""Queries that share stores, in real time on Spark: one run feeds topics, a table and the terminal."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.real_time.test_on_spark import options, started, wait_for
from tests.real_time.topic_results import results, rows_of_topic, without_repeats
from tests.support.jobs import batch_answer
from tests.support.kafka_broker import Broker
from tests.support.workers import workers
from watersmeet import Session
from watersmeet.errors import UnsupportedError

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

NAMES = ("id", "v", "ts")
Rows = list[tuple[object, ...]]
SET = """
EXECUTE STATEMENT SET BEGIN
  INSERT INTO pairs SELECT o.id, o.v, o.ts, p.ts AS pts FROM orders o LEFT JOIN paid p ON o.id = p.id
    WITHIN INTERVAL '6' SECONDS SETTINGS epoch = '2 seconds';
  INSERT INTO keyed SELECT o.id, o.v, p.v AS pv, s.v AS sv FROM orders o JOIN paid p ON o.id = p.id
    JOIN sent s ON s.id = p.id WITHIN INTERVAL '9' SECONDS WHERE o.v > 2 AND lpad(p.v, 3, s.v) <> '003';
  INSERT INTO pairs SELECT s.id, s.v, s.ts, o.ts AS pts FROM sent s JOIN orders o ON o.id = s.id AND o.v < 3
    WITHIN INTERVAL '4' SECONDS;
  INSERT INTO stored SELECT o.id, o.v, s.v AS sv FROM orders o JOIN sent s ON s.id = o.id WITHIN INTERVAL '9' SECONDS;
END;
"""
PAIRS = """
SELECT o.id, o.v, o.ts, p.ts FROM o LEFT JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= 6
UNION ALL SELECT s.id, s.v, s.ts, o.ts FROM s JOIN o ON o.id = s.id AND o.v < 3 AND abs(o.ts - s.ts) <= 4
"""
KEYED = """
SELECT DISTINCT o.id, o.v, p.v, s.v FROM o JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= 9
JOIN s ON s.id = p.id AND abs(o.ts - s.ts) <= 9 AND abs(p.ts - s.ts) <= 9
WHERE o.v > 2 AND lpad(p.v::TEXT, 3, s.v::TEXT) <> '003'
"""
STORED = "SELECT DISTINCT o.id, o.v, s.v FROM o JOIN s ON s.id = o.id AND abs(o.ts - s.ts) <= 9"
LAST = 10_000  # the time of rows that move the frontier, with a key of their own


@pytest.mark.slow
def test_a_set_feeds_all_its_targets(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session, tmp_path: Path
) -> None:
    """A worker is killed, and the query goes on with other buckets; what it gives is right in every target."""
    topics = {name: new_topic() for name in ("orders", "paid", "sent", "pairs", "keyed")}
    seconds = ", event_time_unit = 's'"
    for name in ("orders", "paid", "sent"):
        session.sql(
            f"CREATE STREAM {name} (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS)"
            f" {options(broker, topics[name], seconds)}"
        )
    session.sql(f"CREATE STREAM pairs {options(broker, topics['pairs'])}")
    columns = "(id INT, v INT, pv INT, sv INT) PRIMARY KEY (id, v, pv, sv)"
    session.sql(f"CREATE MUTABLE STREAM keyed {columns} {options(broker, topics['keyed'])}")
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE stored (id INTEGER, v INTEGER, sv INTEGER, PRIMARY KEY (id, v, sv))")
    table = f"(connector = 'jdbc', url = 'jdbc:sqlite:{tmp_path}/shop.db', table = 'stored')"
    session.sql(f"CREATE MUTABLE STREAM stored (id INT, v INT, sv INT) PRIMARY KEY (id, v, sv) WITH {table}")
    chance, fed = random.Random(7), {name: Rows() for name in ("orders", "paid", "sent")}

    def feed(seconds: range) -> None:
        """Rows of each stream, out of order by less than its delay."""
        for name, rows in fed.items():
            added = [(chance.randrange(5), chance.randrange(6), second + chance.randrange(5)) for second in seconds]
            rows += added
            for partition in (0, 1):
                end = [(-1, 0, LAST)] if seconds.stop == 60 else []
                values = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in [*added[partition::2], *end]]
                broker.produce(spark, topics[name], values, partition=partition)

    def expected(sql: str) -> Counter[tuple[Any, ...]]:
        tables = {alias: (NAMES, fed[name]) for alias, name in (("o", "orders"), ("p", "paid"), ("s", "sent"))}
        return Counter(batch_answer(sql, **tables))

    query = started(session, SET)
    assert query.name == "into_pairs_from_orders_paid_and_3_more"
    feed(range(30))
    wait_for(lambda: len(results(broker, topics["keyed"])) > 0, query)
    with suppress(ProcessLookupError):
        wait_for(lambda: bool(workers(spark)), query)
        os.kill(random.Random(3).choice(workers(spark)), signal.SIGKILL)
    feed(range(30, 45))
    commits = Path(query.checkpoint, "spark", "commits")
    wait_for(lambda: any(commits.glob("[0-9]*")), query)  # else there is no state to divide
    query.stop()
    (done,) = session.rescale(SET, 3, real_time=True)
    assert done.after == 3
    query = started(session, SET)
    feed(range(45, 60))

    def pairs() -> Counter[tuple[Any, ...]]:
        kept = without_repeats(results(broker, topics["pairs"]))
        rows = [tuple(each.value.values()) for each in kept if each.value is not None]
        return Counter(row for row in rows if row[0] >= 0)

    wait_for(lambda: pairs() == expected(PAIRS), query)
    wait_for(lambda: rows_of_topic(results(broker, topics["keyed"])) == set(expected(KEYED)), query)
    found = "SELECT id, v, sv FROM stored WHERE id >= 0"
    wait_for(lambda: set(database.execute(found).fetchall()) == set(expected(STORED)), query)
    names = {each.headers["_query"].rsplit("-", 2)[0] for each in results(broker, topics["pairs"])}
    assert names == {"into_pairs_from_orders_paid", "into_pairs_from_sent_orders"}
    query.stop()


def test_topics_of_two_clusters_are_refused(broker: Broker, new_topic: Callable[..., str], session: Session) -> None:
    read = {name: new_topic() for name in ("orders", "paid")}
    for name, topic in read.items():
        session.sql(f"CREATE STREAM {name} (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {options(broker, topic)}")
    session.sql(f"CREATE STREAM here {options(broker, new_topic())}")
    client = ", kafka.acks = 'all'"
    session.sql(f"CREATE STREAM there {options(broker, 'there', client)}")
    query = "SELECT o.id FROM orders o JOIN paid p ON o.id = p.id WITHIN INTERVAL '6' SECONDS"
    with pytest.raises(UnsupportedError, match=r"topics \S+ at \S+ and there at \S+ have different.*\(kafka.acks\)"):
        session.sql(
            f"EXECUTE STATEMENT SET BEGIN INSERT INTO here {query}; INSERT INTO there {query}; END", mode="real_time"
        )
