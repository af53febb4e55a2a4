"""Counters: over buckets, and out of a query's progress."""

from __future__ import annotations

import json
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.frames import FrameKind
from watersmeet.runtime.metrics import (
    ProgressReader,
    counters_of,
    kernel_counters,
    observed_counters,
    rows_out,
    updated,
)


def test_counters_are_summed_over_buckets_and_the_frontier_is_the_least(spark: SparkSession) -> None:
    kinds = (int(FrameKind.COUNTER), int(FrameKind.ROWS))
    reported = [
        ("join_1.late.o", 2),
        ("join_1.frontier", 70),
        ("join_1.late.o", 3),
        ("join_1.frontier", 40),
        ("join_1.worker_bytes", 300),
        ("join_1.worker_bytes", 200),
        ("join_1.heard.o.frontier", 1),  # a part that is called so
        ("join_1.heard.o.frontier", 1),
    ]
    values = [f"({kinds[0]}, '{name}', {value}L)" for name, value in reported] + [
        f"({kinds[1]}, 'join_1.late.o', 100L)"
    ]
    frames = spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t (kind, part, frontier)")
    (row,) = frames.select(observed_counters()).collect()
    assert row.counters == {
        "join_1.late.o": 5,
        "join_1.frontier": 40,
        "join_1.worker_bytes": 300,
        "join_1.heard.o.frontier": 2,
    }


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
