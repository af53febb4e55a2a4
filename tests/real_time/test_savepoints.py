"""A query in real time goes on from a copy that was made while it ran, and loses and doubles nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

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
from tests.real_time.test_rescale import last_epoch
from tests.real_time.topic_results import results, without_repeats
from tests.support.kafka_broker import Broker
from watersmeet import Session
from watersmeet.runtime.inspection.copy import copy_checkpoint
from watersmeet.runtime.inspection.verify import verify
from watersmeet.session.results import Started

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def has_taken(folder: str, epoch: int) -> bool:
    return last_epoch(folder) >= epoch


def test_a_query_goes_on_from_a_copy(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], session: Session, tmp_path: Path
) -> None:
    topics, out = {kind: new_topic() for kind in "op"}, new_topic()
    streams = {k: options(broker, t, ", event_time_unit = 'ms'") for k, t in topics.items()}
    session.sql("".join(STREAMS.partition("CREATE MUTABLE")[:1]).format(**streams))
    session.sql(f"CREATE STREAM padded {options(broker, out)}")
    job = f"INSERT INTO padded {QUERIES['padded']} SETTINGS epoch = '2 seconds'"
    query = started(session, job)
    for part in range(4):
        for partition in (0, 1):
            for kind, topic in topics.items():
                broker.produce(spark, topic, rows(kind, 200 * part + 100 * partition, 100), partition=partition)
        wait_for(partial(has_taken, query.checkpoint, last_epoch(query.checkpoint) + 3), query)
        if part == 3:
            break
        # while it runs, for the files; the one to go on from, when no more results come
        copied = copy_checkpoint(query.checkpoint, str(tmp_path / f"running-{part}" / query.name))
        assert verify(copied.target).faults == []
        query.stop()
        copied = copy_checkpoint(query.checkpoint, str(tmp_path / f"copy-{part}" / query.name))
        assert copied.rows > 0
        (result,) = session.run(job, checkpoint=str(tmp_path / f"copy-{part}"), real_time=True)
        assert isinstance(result, Started)
        query = result.query
        assert query.checkpoint == copied.target
    expected = pairs_and_padded(800)
    values = ['{"id": 1000000, "k": 1, "ts": 1000000000}']
    for topic in topics.values():
        for partition in (0, 1):
            broker.produce(spark, topic, values, partition=partition)
    wait_for(lambda: net(without_repeats(results(broker, out))).keys() >= expected, query)
    found = {row: n for row, n in net(without_repeats(results(broker, out))).items() if row[1] < 10**9}
    assert found == dict.fromkeys(expected, 1)
