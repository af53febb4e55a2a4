"""Streams whose rows change, on Spark: joins and aggregates react to each INSERT, and agree with what is stored."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Batch, Started
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

STREAMS = """
CREATE MUTABLE STREAM left_mu (i int, k string, k1 string) PRIMARY KEY (k, k1);
CREATE MUTABLE STREAM right_mu (ii int, kk string, kk1 string) PRIMARY KEY (kk, kk1);
"""
JOIN = "SELECT *, _tp_delta FROM left_mu JOIN right_mu ON left_mu.k = right_mu.kk EMIT CHANGELOG"
FIGURES = "count(), min(i), max(i), avg(i), min(ii), max(ii), avg(ii)"
AGGREGATE = f"SELECT {FIGURES} FROM left_mu JOIN right_mu ON left_mu.k = right_mu.kk"
HISTORICAL = (
    f"SELECT {FIGURES} FROM table(left_mu) AS left_mu JOIN table(right_mu) AS right_mu ON left_mu.k = right_mu.kk"
)


class Shell:
    """A session of its own, whose one query shows its changes."""

    def __init__(self, spark: SparkSession, workspace: Path, query: str) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.session: Session = watersmeet.connect(spark, workspace)
        self.session.show = self._show
        (started,) = self.session.run(query)
        assert isinstance(started, Started)
        self.query: RunningQuery = started.query

    def _show(self, names: Sequence[str], changes: Any, batch: int) -> None:
        self.seen += [(weight, tuple(row)) for weight, row in changes]

    def takes(self, count: int) -> list[tuple[Any, ...]]:
        """The next so many changes, once they are there."""
        until(lambda: len(self.seen) >= count or not self.query.is_active)
        found, self.seen = self.seen[:count], self.seen[count:]
        return sorted(found, key=repr)


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_third_seeds_example_in_two_shells(spark: SparkSession, tmp_path: Path) -> None:
    writer = watersmeet.connect(spark, tmp_path)
    writer.sql(STREAMS)
    joined, counted = Shell(spark, tmp_path, JOIN), Shell(spark, tmp_path, AGGREGATE)
    try:
        writer.sql("INSERT INTO left_mu(i, k, k1) VALUES (1, 'a', 'b')")
        writer.sql("INSERT INTO right_mu(ii, kk, kk1) VALUES (11, 'a', 'bb')")
        assert joined.takes(1) == [(1, (1, "a", "b", 11, "a", "bb"))]
        until(lambda: bool(counted.seen) and counted.seen[-1] == (1, (1, 1, 1, 1.0, 11, 11, 11.0)))
        counted.seen.clear()

        writer.sql("INSERT INTO left_mu(i, k, k1) VALUES (2, 'a', 'b')")
        assert joined.takes(2) == [(-1, (1, "a", "b", 11, "a", "bb")), (1, (2, "a", "b", 11, "a", "bb"))]
        assert counted.takes(2) == [(-1, (1, 1, 1, 1.0, 11, 11, 11.0)), (1, (1, 2, 2, 2.0, 11, 11, 11.0))]

        writer.sql("INSERT INTO right_mu(ii, kk, kk1) VALUES (22, 'a', 'bb')")
        assert joined.takes(2) == [(-1, (2, "a", "b", 11, "a", "bb")), (1, (2, "a", "b", 22, "a", "bb"))]
        assert counted.takes(2) == [(-1, (1, 2, 2, 2.0, 11, 11, 11.0)), (1, (1, 2, 2, 2.0, 22, 22, 22.0))]
    finally:
        joined.query.stop()
        counted.query.stop()
    historical = writer.sql(HISTORICAL)
    assert isinstance(historical, Batch)
    assert [tuple(row) for row in historical.frame.collect()] == [(1, 2, 2, 2.0, 22, 22, 22.0)]


def accumulated(frame: DataFrame, folder: Path) -> Counter[tuple[Any, ...]]:
    """What the changes of all there is add up to."""
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "out"))
    assert query.awaitTermination(120)
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, delta in frame.sparkSession.read.parquet(str(folder / "out")).collect():
        found[tuple(row)] += delta
    assert all(count >= 0 for count in found.values())
    return +found


@pytest.mark.slow
def test_frames_are_joined_and_aggregated(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(1, 7, 30, 1, 1), (2, 8, 50, 2, 1), (3, 8, 20, 3, 1), (3, 8, 25, 4, 1), (2, 8, 0, 5, -1)]
    names = ["id", "customer", "amount", "at", "_tp_delta"]
    spark.createDataFrame(rows, names).coalesce(1).write.parquet(str(tmp_path / "orders"))
    customers = [(7, "basic", 1), (8, "basic", 2), (8, "gold", 3)]
    spark.createDataFrame(customers, ["id", "tier", "at"]).coalesce(1).write.parquet(str(tmp_path / "customers"))
    orders, tiers = (
        spark.readStream.schema(spark.read.parquet(str(tmp_path / name)).schema).parquet(str(tmp_path / name))
        for name in ("orders", "customers")
    )
    common = {"on": [("customer", "id")], "left_key": "id", "right_key": "id", "time": "at", "how": "left"}
    joined = watersmeet.changelog_join(orders, tiers, **common).select("id", "amount", "tier", "_tp_delta")  # type: ignore[arg-type]
    assert accumulated(joined, tmp_path / "joined") == {(1, 30, "basic"): 1, (3, 25, "gold"): 1}

    by_tier = {"by": "tier", "aggregates": {"n": "count()", "total": "sum(amount)"}}
    grouped = watersmeet.changelog_join(orders, tiers, **common, **by_tier)  # type: ignore[arg-type]
    assert accumulated(grouped, tmp_path / "grouped") == {("basic", 1, 30): 1, ("gold", 1, 25): 1}

    totals = watersmeet.aggregate(
        orders,
        by="customer",
        aggregates={"total": "sum(amount)"},
        having="sum(amount) > 25",
        primary_key="id",
        time="at",
    )
    assert accumulated(totals, tmp_path / "totals") == {(7, 30): 1}
