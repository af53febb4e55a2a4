"""Counters: over buckets, and out of a query's progress."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.frames import Frame, counter_frame, row_frames
from watersmeet.runtime.metrics import (
    ProgressReader,
    counters_of,
    kernel_counters,
    observed_counters,
    rows_out,
    updated,
)

FIRST = {
    "join_1.late.o": 2,
    "join_1.frontier": 70,
    "join_1.worker_bytes": 300,
    "join_1.heard.o.frontier": 1,  # a part that is called so
    "join_1.input_frontier.o": 70,
}
SECOND = {
    "join_1.late.o": 3,
    "join_1.frontier": 40,
    "join_1.worker_bytes": 200,
    "join_1.heard.o.frontier": 1,
    "join_1.behind": 7,
    "join_1.input_frontier.o": 60,
    "join_1.input_frontier.p": 40,
}
BOTH = {
    "join_1.late.o": 5,
    "join_1.frontier": 40,
    "join_1.worker_bytes": 300,
    "join_1.heard.o.frontier": 2,
    "join_1.behind": 7,
    "join_1.input_frontier.o": 60,
    "join_1.input_frontier.p": 40,
}


def observed(spark: SparkSession, frames: Sequence[Frame], reports: int) -> dict[str, int] | None:
    """What Spark makes of the frames, each in a task of its own."""
    rows = [(each.part, int(each.kind), each.frontier, bytearray(each.payload)) for each in frames]
    frame = spark.createDataFrame(rows, "part STRING, kind INT, frontier BIGINT, payload BINARY").repartition(len(rows))
    (row,) = frame.select(observed_counters(reports)).collect()
    return cast("dict[str, int] | None", row.counters)


def test_counters_are_summed_over_buckets_and_the_frontier_is_the_least(spark: SparkSession) -> None:
    (rows,) = row_frames(pa.table({"join_1.late.o": [100]}), bucket=0, input=0)
    frames = [counter_frame(0, "join_1.0", FIRST), counter_frame(3, "join_1.3", SECOND), rows]
    assert observed(spark, frames, reports=2) == BOTH


def test_a_bucket_whose_task_ran_twice_counts_once(spark: SparkSession) -> None:
    frames = [counter_frame(0, "join_1.0", FIRST), counter_frame(3, "join_1.3", SECOND)]
    assert observed(spark, [*frames, frames[0]], reports=2) == BOTH


def test_there_are_no_counters_before_every_bucket_has_reported(spark: SparkSession) -> None:
    assert observed(spark, [counter_frame(0, "join_1.0", FIRST)], reports=2) is None


class FakeReport:
    def __init__(self, batch: int, has_metrics: bool = True) -> None:
        metrics = {"watersmeet": {"counters": {"join_1.late.o": batch}}, "watersmeet_results": {"rows_out": 7}}
        self.text = json.dumps({"batchId": batch, "observedMetrics": metrics if has_metrics else {}})
        self.asked = 0

    def json(self) -> str:
        self.asked += 1
        return self.text


class FakeQuery:
    """What is asked of Spark's side of a query."""

    def __init__(self) -> None:
        self.reports: list[FakeReport] = []
        self._jsq = self

    def recentProgress(self) -> list[FakeReport]:  # noqa: N802 - Java's name
        return self.reports


def test_a_report_is_read_once_and_old_ones_are_not_asked_for_again() -> None:
    query, reader = FakeQuery(), ProgressReader()

    def new() -> list[dict[str, Any]]:
        return reader.new(cast(StreamingQuery, query))

    assert new() == []
    query.reports = [FakeReport(0), FakeReport(1)]
    assert [each["batchId"] for each in new()] == [0, 1]
    assert new() == []
    query.reports = [*query.reports[1:], FakeReport(2), FakeReport(3, has_metrics=False)]
    found = new()
    assert [counters_of(each) for each in found] == [{"join_1.late.o": 2}, {}]
    assert [rows_out(each) for each in found] == [7, 0]
    assert query.reports[0].asked == 3  # when it was new, when it was the newest, and when it ended the new ones


def test_what_kernels_count_is_told_apart_from_what_all_operators_do() -> None:
    common = {
        "join_1.in.o": 9,
        "join_1.late.o": 1,
        "join_1.heard.o.topic-0": 5,
        "join_1.state_rows": 4,
        "join_1.found.0>1>2.1": 3,
        "join_1.held_bytes.o": 90,
        "join_1.step_time.40": 2,
        "join_1.worker_bytes": 300,
        "join_1.input_frontier.o": 8,
    }
    own = {"join_1.ignored_deletes.o": 2, "join_1.outdated.p": 0, "join_1.behind": 3, "join_1.asked": 7}
    assert kernel_counters({**common, **own, "join_1.frontier": 8}) == own


def test_probe_orders_that_are_no_longer_reported_are_forgotten() -> None:
    counters = {"join_1.late.a": 1, "join_1.sampled.0>1>2": 9, "join_1.found.0>1>2.1": 3}
    assert updated(counters, {"join_1.sampled.0>2>1": 5}) == {"join_1.late.a": 1, "join_1.sampled.0>2>1": 5}


def test_steps_add_up_over_reports() -> None:
    counters = {"join_1.late.a": 1, "join_1.step_time.40": 2, "join_1.step_time.44": 1}
    assert updated(counters, {"join_1.late.a": 2, "join_1.step_time.40": 3}) == {
        "join_1.late.a": 2,
        "join_1.step_time.40": 5,
        "join_1.step_time.44": 1,
    }
