"""Runs a query over its topics with one engine until standard input ends.

    python -m benchmarks.latency.engines ENGINE QUERY --broker ADDRESS --topics PREFIX --jars JARS --epoch SECONDS

ENGINE is ``real_time`` or ``micro_batch`` (Watersmeet), or ``spark_real_time`` or ``spark_micro_batch`` (Spark's own
join).
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.engines import SETTINGS
from benchmarks.latency.parent import when_input_ends
from benchmarks.latency.queries import PARTITIONS, QUERIES, WINDOW_MS, Query

_POLL_SECONDS = 0.2
#: In real time all tasks run at once, and each needs a slot.
_MASTERS = {True: "local[32]", False: f"local[{PARTITIONS}]"}
_SPARK_REAL_TIME = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # joins of streams are not on the list
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
}


@dataclass(frozen=True, slots=True)
class Job:
    """A query, where its topics are, and how long an epoch lasts in real time."""

    query: Query
    broker: str
    topics: str
    jars: str
    epoch_seconds: float
    is_real_time: bool

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark, for its own join and for Watersmeet."""
        return {**SETTINGS, "spark.jars": self.jars, "spark.sql.shuffle.partitions": str(PARTITIONS)}

    @property
    def master(self) -> str:
        """Where Spark runs."""
        return _MASTERS[self.is_real_time]


def statements(job: Job) -> list[str]:
    """Return the definitions of streams and sink, and the INSERT, in Watersmeet's SQL."""
    query, found = job.query, []
    for side in query.sides:
        delay = f"INTERVAL '{query.delay_ms}' MILLISECONDS"
        columns = f"{side}_id BIGINT, {side}_key BIGINT, {side}_ts BIGINT"
        key = f", PRIMARY KEY ({side}_key)" if side in query.keyed else ""
        mode = " SETTINGS mode = 'versioned_kv'" if side in query.keyed else ""
        options = _with(job, side, event_time_unit="ms")
        watermark = f"WATERMARK FOR {side}_ts AS {side}_ts - {delay}"
        found.append(f"CREATE STREAM {side} ({columns}, {watermark}{key}) WITH ({options}){mode}")
    types = ", ".join(f"{name} BIGINT" for name in query.columns)
    mutable, key = ("MUTABLE ", " PRIMARY KEY (l_key)") if query.kind.is_upsert else ("", "")
    found.append(f"CREATE {mutable}STREAM o ({types}){key} WITH ({_with(job, 'o')})")
    settings = f" SETTINGS mode = 'real_time', epoch = '{job.epoch_seconds:g} seconds'" if job.is_real_time else ""
    return [*found, f"INSERT INTO o {query.sql}{settings}"]


def _with(job: Job, name: str, **more: str) -> str:
    options = {"connector": "kafka", "topic": f"{job.topics}-{name}", "brokers": job.broker, "format": "json", **more}
    return ", ".join(f"{name} = '{value}'" for name, value in options.items())


def run_watersmeet(job: Job, ends: threading.Event) -> None:
    """Run the query with Watersmeet."""
    import watersmeet
    from watersmeet.session.results import Started

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as workspace:
        session = watersmeet.connect(workspace=workspace, master=job.master, config=job.settings)
        *definitions, insert = statements(job)
        for each in definitions:
            session.sql(each)
        (started,) = session.run(insert)
        assert isinstance(started, Started)
        while not ends.is_set():
            if started.query.wait(_POLL_SECONDS):
                raise SystemExit("the query has ended")
        started.query.stop()
        session.stop()


def run_spark(job: Job, ends: threading.Event) -> None:
    """Run Spark's own join."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.builder.master(job.master).config("spark.ui.enabled", "false")
    for name, value in {**job.settings, **_SPARK_REAL_TIME, "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    left, right = (_side(spark, job, side) for side in job.query.sides)
    span = f"INTERVAL {WINDOW_MS} MILLISECONDS"
    joined = left.join(right, F.expr(f"l_key = r_key AND r_time BETWEEN l_time - {span} AND l_time + {span}"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = (
            joined.select(F.to_json(F.struct(*job.query.columns)).alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", job.broker)
            .option("topic", f"{job.topics}-o")
            .option("checkpointLocation", checkpoint)
        )
        if job.is_real_time:
            writer = writer.outputMode("update").trigger(realTime=f"{job.epoch_seconds:g} seconds")
        query = writer.start()
        while not ends.is_set():
            if query.awaitTermination(_POLL_SECONDS):
                raise SystemExit("the query has ended")
        query.stop()
        spark.stop()


def _side(spark: Any, job: Job, side: str) -> Any:
    from pyspark.sql import functions as F

    options: Mapping[str, str] = {
        "kafka.bootstrap.servers": job.broker,
        "subscribe": f"{job.topics}-{side}",
        "startingOffsets": "earliest",
    }
    columns = f"{side}_id BIGINT, {side}_key BIGINT, {side}_ts BIGINT"
    rows = spark.readStream.format("kafka").options(**options).load()
    rows = rows.select(F.from_json(F.col("value").cast("string"), columns).alias("row")).select("row.*")
    rows = rows.withColumn(f"{side}_time", F.timestamp_millis(f"{side}_ts"))
    return rows.withWatermark(f"{side}_time", f"{job.query.delay_ms} milliseconds")


def main() -> None:
    """Run the engine and the query that the arguments name."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("engine", choices=["real_time", "micro_batch", "spark_real_time", "spark_micro_batch"])
    arguments.add_argument("query", choices=list(QUERIES))
    for name in ("--broker", "--topics", "--jars"):
        arguments.add_argument(name, required=True)
    arguments.add_argument("--epoch", type=float, required=True)
    options = arguments.parse_args()
    is_real_time = options.engine.endswith("real_time")
    job = Job(QUERIES[options.query], options.broker, options.topics, options.jars, options.epoch, is_real_time)
    ends = threading.Event()
    when_input_ends(ends.set)
    run = run_spark if options.engine.startswith("spark") else run_watersmeet
    run(job, ends)


if __name__ == "__main__":
    main()
