"""Runs a query over its topics with one engine until standard input ends.

    python -m benchmarks.latency.engines ENGINE QUERY --broker ADDRESS --topics PREFIX --jars JARS --epoch SECONDS

ENGINE is ``real_time`` or ``micro_batch`` (Watersmeet), ``spark_real_time`` or ``spark_micro_batch`` (Spark's own
join), or ``spark_python``: Spark in real time, with two Python functions and a shuffle between them, which pass rows
on.  That is the least that a query takes whose operators are in Python.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

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
#: With these, a row that Python yields is sent on at once.
_SPARK_PYTHON = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
}
_BY_SPARK = ("spark_real_time", "spark_micro_batch", "spark_python")
_PASSED = "l_id BIGINT, l_key BIGINT, l_ts BIGINT"


@dataclass(frozen=True, slots=True)
class Job:
    """A query, where its topics are, and how long an epoch lasts in real time."""

    engine: str
    query: Query
    broker: str
    topics: str
    jars: str
    epoch_seconds: float

    @property
    def is_real_time(self) -> bool:
        """Whether all tasks run at once."""
        return not self.engine.endswith("micro_batch")

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

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(job.master).config("spark.ui.enabled", "false")
    settings = {**job.settings, **_SPARK_REAL_TIME, "spark.sql.session.timeZone": "UTC"}
    for name, value in {**settings, **(_SPARK_PYTHON if job.engine == "spark_python" else {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = (
            _by_spark(spark, job)
            .select(F.to_json(F.struct(*job.query.columns)).alias("value"))
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


def _by_spark(spark: Any, job: Job) -> Any:
    """Return the query's results: of its join, or the rows that it passes on."""
    from pyspark.sql import functions as F

    left, *others = (_side(spark, job, side) for side in job.query.sides)
    if job.engine == "spark_python":
        passed = left.drop("l_time").mapInArrow(_pass, _PASSED).repartition(PARTITIONS, "l_key")
        return passed.mapInArrow(_pass, _PASSED).where("l_id IS NOT NULL")
    if not others:
        return left
    span = f"INTERVAL {WINDOW_MS} MILLISECONDS"
    return left.join(others[0], F.expr(f"l_key = r_key AND r_time BETWEEN l_time - {span} AND l_time + {span}"))


def _pass(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows on, each before one of NULLs: Spark hands a row to the next function when there is another one."""
    for batch in batches:
        if batch.column(0).null_count == 0:
            yield batch
            yield pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in batch.schema], schema=batch.schema)


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
    arguments.add_argument("engine", choices=["real_time", "micro_batch", *_BY_SPARK])
    arguments.add_argument("query", choices=list(QUERIES))
    for name in ("--broker", "--topics", "--jars"):
        arguments.add_argument(name, required=True)
    arguments.add_argument("--epoch", type=float, required=True)
    options = arguments.parse_args()
    job = Job(options.engine, QUERIES[options.query], options.broker, options.topics, options.jars, options.epoch)
    ends = threading.Event()
    when_input_ends(ends.set)
    run = run_spark if options.engine in _BY_SPARK else run_watersmeet
    run(job, ends)


if __name__ == "__main__":
    main()
