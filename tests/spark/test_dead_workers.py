"""Python workers that are killed in the middle of a batch, as the kernel does it when memory runs out."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS, batch_answer, json_lines, json_rows, write_lines
from tests.support.workers import workers
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NAMES = ("id", "ts")
FILES = 12
ROWS = {name: [((7 * i + step) % 50, i) for i in range(25 * FILES)] for name, step in (("o", 0), ("p", 3))}
JOB = """
CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/o', event_time_unit = 's', max_files_per_trigger = '1');
CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/p', event_time_unit = 's', max_files_per_trigger = '1');
CREATE STREAM sink WITH (connector = 'files', path = '{0}/out');
INSERT INTO sink SELECT o.id, o.ts, p.id AS pid, p.ts AS pts
FROM o FULL JOIN p ON o.id = p.id WITHIN INTERVAL '40' SECONDS EMIT FINAL;
"""
ANSWER = "SELECT o.id, o.ts, p.id, p.ts FROM o FULL JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= 40"


def started(spark: SparkSession, folder: Path) -> RunningQuery:
    for name, rows in ROWS.items():
        for number in range(FILES):
            part = rows[25 * number : 25 * (number + 1)]
            write_lines(folder / name / f"{number}.json", json_lines(part, NAMES), age=number)
    session = watersmeet.connect(spark, workspace=folder / "workspace")
    (query,) = (
        result.query for result in session.run(JOB.format(folder), QueryMode.BOUNDED) if isinstance(result, Started)
    )
    return query


def kill_workers(spark: SparkSession) -> int:
    killed = 0
    for pid in workers(spark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def is_at_work(spark: SparkSession) -> bool:
    tracker = spark.sparkContext.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


@pytest.mark.slow
def test_a_query_goes_on_with_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    query = started(spark, tmp_path)
    killed: dict[int, int] = {}
    while not query.wait(0.02):
        batch = query.report().batches
        if killed.get(batch, 0) < 2 and is_at_work(spark):  # Spark tries a task four times
            killed[batch] = killed.get(batch, 0) + (kill_workers(spark) > 0)
    assert sum(killed.values()) >= 4
    assert json_rows(tmp_path / "out") == batch_answer(ANSWER, **{name: (NAMES, rows) for name, rows in ROWS.items()})


def test_a_query_that_ends_by_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    query = started(spark, tmp_path)
    give_up = time.monotonic() + PATIENCE_SECONDS
    while query.is_active and time.monotonic() < give_up:
        kill_workers(spark)
    with pytest.raises(WatersmeetError) as raised:
        query.wait()
    assert raised.value.message.endswith("failed: a Python worker died, perhaps because memory ran out")
    assert "worker_memory" in str(raised.value.hint)
