"""A query in real time that gets other buckets between two runs loses and doubles nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.real_time.test_on_spark import (
    QUERIES,
    STREAMS,
    net,
    options,
    pairs_and_padded,
    rows,
    started,
    wait_for,
)
from tests.real_time.topic_results import results, rows_of_topic, without_repeats
from tests.support.kafka_broker import Broker
from watersmeet import Session

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def last_epoch(folder: str) -> int:
    return max((int(path.name) for path in Path(folder, "spark", "commits").glob("[0-9]*")), default=-1)


def test_a_query_goes_on_with_other_buckets(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session
) -> None:
    topics, out = {kind: new_topic() for kind in "op"}, {name: new_topic() for name in ("padded", "counts")}
    streams = {k: options(broker, t, ", event_time_unit = 'ms'") for k, t in topics.items()}
    session.sql("".join(STREAMS.partition("CREATE MUTABLE")[:1]).format(**streams))
    session.sql(f"""
        CREATE STREAM padded {options(broker, out["padded"])};
        CREATE MUTABLE STREAM counts (k BIGINT, n BIGINT) PRIMARY KEY (k) {options(broker, out["counts"])};
    """)
    jobs = [f"INSERT INTO {name} {QUERIES[name]} SETTINGS epoch = '2 seconds'" for name in out]
    queries = []
    for part, buckets in enumerate((3, 1, 2, None)):
        queries = [started(session, job) for job in jobs]
        for partition in (0, 1):
            for kind, topic in topics.items():
                broker.produce(spark, topic, rows(kind, 200 * part + 100 * partition, 100), partition=partition)
        folders = [query.checkpoint for query in queries]
        before = [last_epoch(folder) for folder in folders]
        # the rows are taken before an epoch that begins after them ends
        for query, folder, epoch in zip(queries, folders, before, strict=True):
            wait_for(lambda folder=folder, epoch=epoch: last_epoch(folder) >= epoch + 3, query)  # type: ignore[misc]
        if buckets is None:
            break
        for query, job in zip(queries, jobs, strict=True):
            query.stop()
            state = Path(query.checkpoint, f"epochs-{part}" if part else "epochs")
            (notes := state / "sink" / "a note").parent.mkdir(exist_ok=True)
            notes.write_text("of a sink")
            (done,) = session.rescale(job, buckets, real_time=True)
            assert done.after == buckets
            names = sorted(path.name for path in Path(query.checkpoint).glob("epochs*"))
            assert names == [state.name, f"epochs-{part + 1}"]
            assert Path(query.checkpoint, f"epochs-{part + 1}", "sink", "a note").read_text() == "of a sink"
    values = [json.dumps({"id": 10**6, "k": 1, "ts": 10**9})]
    for topic in topics.values():
        for partition in (0, 1):
            broker.produce(spark, topic, values, partition=partition)
    expected = pairs_and_padded(800)
    kept = without_repeats
    wait_for(lambda: net(kept(results(broker, out["padded"]))).keys() >= expected, queries[0])
    found = {row: n for row, n in net(kept(results(broker, out["padded"]))).items() if row[1] < 10**9}
    assert found == dict.fromkeys(expected, 1)
    counted: dict[Any, int] = {}
    for id, _, pid in expected:
        if pid is not None:
            k = next(json.loads(row)["k"] for row in rows("o", id // 100 * 100, 100) if json.loads(row)["id"] == id)
            counted[k] = counted.get(k, 0) + 1
    counted[1] += 4  # the last rows: two of each side
    wait_for(lambda: set(rows_of_topic(results(broker, out["counts"]))) == set(counted.items()), queries[1])
