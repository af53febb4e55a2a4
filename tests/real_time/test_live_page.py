"""The live page of a query in real time: epochs appear as they end, with their counters."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS
from tests.support.kafka_broker import Broker
from watersmeet.session.results import Started

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

JOB = """
CREATE STREAM o (id BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) {o};
CREATE STREAM p (id BIGINT, ts BIGINT, WATERMARK FOR ts AS ts) {p};
CREATE STREAM pairs {out};
INSERT INTO pairs SELECT o.id, p.ts FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '5' SECONDS
  SETTINGS epoch = '2 seconds';
"""


def asked(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}status.json", timeout=20) as answer:
        (query,) = json.load(answer)["queries"]
    found: dict[str, Any] = query
    return found


@pytest.mark.slow
def test_epochs_appear_with_their_counters(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topics = {name: f"t{uuid.uuid4().hex}" for name in ("o", "p", "out")}
    for topic in topics.values():
        broker.create_topic(spark, topic, 1)
    times = ", event_time_unit = 'ms'"
    streams = {
        name: f"WITH (connector = 'kafka', brokers = '{broker.address}', topic = '{topic}'{times * (name != 'out')})"
        for name, topic in topics.items()
    }
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    try:
        page = session.ui("127.0.0.1:0")
        (query,) = [
            result.query for result in session.run(JOB.format(**streams), real_time=True) if isinstance(result, Started)
        ]
        seen: list[dict[str, Any]] = []
        for turn in range(3):
            for name in "op":
                values = [json.dumps({"id": 10 * turn + id, "ts": 1000 * (10 * turn + id)}) for id in range(10)]
                broker.produce(spark, topics[name], [*values, *["no json"] * (name == "o")], partition=0)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while (found := asked(page.url))["rows_in"] < 21 * (turn + 1):
                query.wait(0)
                assert time.monotonic() < deadline
                time.sleep(0.5)
            seen.append(found)
    finally:
        session.stop()
    last = seen[-1]
    assert (last["real_time"], last["state"], last["rows_in"]) == (True, "running", 63)
    assert (last["used"], last["quarantined"]) == (60, 3)
    assert [each["batches"] for each in seen] == sorted({each["batches"] for each in seen})  # each in a later epoch
    assert last["last_batch"]["number"] >= last["batches"] - 1 >= 2
    join = last["operators"]["join_1"]
    assert (join["results"], join["sides"]["o"]["quarantined"], join["rows_in"]) == (30, 3, 63)
    assert join["frontier"]["value"] == 29_000_000
    assert sum(last["history"]["rows_in"]) == 63
    assert sum(last["history"]["batches"]) == last["batches"]
    assert "join_1" in last["explain"]
