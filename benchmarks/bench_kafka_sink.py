"""Measures how many rows a second a batch writes to a Kafka topic.

    python -m benchmarks.bench_kafka_sink [--rows N] [--times N]

The rows are read from Parquet by two tasks, written as JSON with this project's headers, and compared with what Spark
takes to write the same records, to write the same values without headers, and to read the rows alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import watersmeet
from benchmarks.arguments import count
from benchmarks.engines import SETTINGS
from benchmarks.streams import Data, write_streams
from tests.support.kafka_broker import kafka_broker
from tests.support.spark_jars import package_jars
from watersmeet.connectors.kafka.sink import write_batch

_PARTITIONS = 2
_KEY = "query-000000000007"


def main() -> None:
    """Write the rows in each way, some times, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=2_000_000)
    arguments.add_argument("--times", type=count, default=3)
    options = arguments.parse_args()
    config = {**SETTINGS, "spark.jars": ",".join(package_jars("kafka"))}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, kafka_broker(is_measured=True) as broker:
        files = write_streams(Path(folder), Data(options.rows, files=_PARTITIONS, sides="l"))
        session = watersmeet.connect(workspace=Path(folder, "workspace"), master=f"local[{_PARTITIONS}]", config=config)
        rows = session.spark.read.parquet(str(files / "l"))
        topic = {"topic": "results", "brokers": broker.address}
        admin = AdminClient({"bootstrap.servers": broker.address})  # what it returns needs it to live
        admin.create_topics([NewTopic("results", _PARTITIONS, 1)])["results"].result(30)
        ways: dict[str, Callable[[DataFrame], object]] = {
            "rows read alone": lambda rows: rows.write.format("noop").mode("overwrite").save(),
            "Spark's own writer, without headers": lambda rows: _by_spark(rows, broker.address, {}),
            "Spark's own writer": lambda rows: _by_spark(rows, broker.address, {"_batch": "7", "_query": _KEY}),
            "Watersmeet": lambda rows: write_batch(rows, 7, topic, key=_KEY),
        }
        figures = {name: round(options.rows / _seconds(way, rows, options.times)) for name, way in ways.items()}
        session.stop()
    print(f"{options.rows:,} rows\n\n| | rows/s |\n|---|---|")
    for name, rate in figures.items():
        print(f"| {name} | {rate:,} |")
    print(json.dumps(figures))


def _by_spark(rows: DataFrame, broker: str, headers: Mapping[str, str]) -> None:
    marks = (
        F.struct(F.lit(key).alias("key"), F.encode(F.lit(text), "UTF-8").alias("value"))
        for key, text in headers.items()
    )
    records = rows.select(
        F.to_json(F.struct("*")).alias("value"), *([F.array(*marks).alias("headers")] if headers else [])
    )
    options = {"kafka.bootstrap.servers": broker, "topic": "results", "includeHeaders": "true"}
    records.write.format("kafka").options(**options).save()


def _seconds(way: Callable[[DataFrame], object], rows: DataFrame, times: int) -> float:
    """Return the median; the first time does not count."""
    found = []
    for _ in range(times + 1):
        started = time.perf_counter()
        way(rows)
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


if __name__ == "__main__":
    main()
