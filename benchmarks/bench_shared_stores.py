"""Measures queries over the same streams: as one with shared stores, side by side on their own, and Spark's own joins.

    python -m benchmarks.bench_shared_stores [--rows N] [--ways WAY ...]

Three queries join streams l, r and m within five seconds by one key: l with r, l with m, and all three.  Each way runs
in a process of its own, over the same files, and must give as many rows as DuckDB's batch queries.  The rate counts
each stream's row once, from when every query has done its first batches.  Results are computed and dropped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.arguments import count
from benchmarks.engines import SETTINGS, definitions
from benchmarks.memory import Peak
from benchmarks.streams import Data, streams_folder, write_streams
from benchmarks.workloads import WORKLOADS

_SECONDS = 5
_WARM_UP = 3
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 1800
_QUERIES = ("lr", "lm", "lrm")
_CONFIG = {**SETTINGS, "spark.sql.shuffle.partitions": "2"}
_WORKLOAD = WORKLOADS["multi_3_few"]


def _near(left: str, right: str) -> str:
    span = f"INTERVAL '{_SECONDS}' SECONDS"
    return f"{right}.{right}_ts BETWEEN {left}.{left}_ts - {span} AND {left}.{left}_ts + {span}"


def sql_of(sides: str) -> str:
    """Return the join of some streams, which DuckDB understands as well."""
    first, others = sides[0], sides[1:]
    columns = ", ".join(f"{side}.{side}_id" for side in sides)
    text = f"SELECT {columns}, {first}.{first}_key, {first}.{first}_val FROM {first}"
    for number, side in enumerate(others, 1):
        near = (_near(other, side) for other in sides[:number])
        text += f" JOIN {side} ON {first}.{first}_key = {side}.{side}_key AND {' AND '.join(near)}"
    return text


def shared(session: Any) -> list[Any]:
    """Start the queries as one."""
    inserts = "".join(f"INSERT INTO nothing {sql_of(sides)};" for sides in _QUERIES)
    return _started(session, f"EXECUTE STATEMENT SET BEGIN {inserts} END")


def apart(session: Any) -> list[Any]:
    """Start each query by itself."""
    return _started(session, ";".join(f"INSERT INTO nothing {sql_of(sides)}" for sides in _QUERIES))


def _started(session: Any, script: str) -> list[Any]:
    from watersmeet.runtime.query_mode import QueryMode

    return [result.query for result in session.run(script, QueryMode.DRAIN)]


def run(start: Callable[[Any], list[Any]], data: Data, folder: Path) -> dict[str, Any]:
    """Run the queries that ``start`` starts to the end of their input."""
    import watersmeet

    with tempfile.TemporaryDirectory() as workspace:
        session = watersmeet.connect(workspace=workspace, master="local[2]", config=_CONFIG)
        for definition in definitions(_WORKLOAD, folder):
            session.sql(definition)
        session.sql("CREATE STREAM nothing WITH (connector = 'blackhole')")
        with Peak() as peak:
            queries = start(session)
            rate = _rate(data, lambda: [query.report().batches for query in queries])
            for query in queries:
                query.wait(_PATIENCE_SECONDS)
        reports = [query.report() for query in queries]
        session.spark.stop()
    return {
        "rows_per_s": rate,
        "rows_out": sum(report.rows_out for report in reports),
        "state_rows": sum(report.state_rows for report in reports),
        "state_bytes": sum(report.state_bytes for report in reports),
        "worker_bytes": peak.workers,
        "jvm_bytes": peak.jvm,
    }


def run_spark(data: Data, folder: Path) -> dict[str, Any]:
    """Run the queries with Spark's own joins, side by side."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {**_CONFIG, "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def stream(side: str) -> Any:
        schema = spark.read.parquet(str(folder / side)).schema
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side))
        return rows.withWatermark(f"{side}_ts", "1 second").alias(side)

    def joined(sides: str) -> Any:
        if len(sides) > 2:
            assert _WORKLOAD.spark is not None
            return _WORKLOAD.spark(*(stream(side) for side in sides))
        left, right = tuple(sides)
        on = F.expr(f"{left}.{left}_key = {right}.{right}_key AND {_near(left, right)}")
        return stream(left).join(stream(right), on)

    with tempfile.TemporaryDirectory() as checkpoints, Peak() as peak:
        queries = [
            joined(sides)
            .observe("check", F.count("*").alias("rows_out"))
            .writeStream.format("noop")
            .option("checkpointLocation", f"{checkpoints}/{sides}")
            .trigger(availableNow=True)
            .start()
            for sides in _QUERIES
        ]
        rate = _rate(data, lambda: [len(_batches(query)) for query in queries])
        for query in queries:
            query.awaitTermination(_PATIENCE_SECONDS)
        progress = [each for query in queries for each in query.recentProgress]
        last = [query.recentProgress[-1] for query in queries]
        rows_out = sum(each["observedMetrics"]["check"].rows_out for each in progress if each["observedMetrics"])
        operators = [operator for each in last for operator in each["stateOperators"]]
    return {
        "rows_per_s": rate,
        "rows_out": rows_out,
        "state_rows": sum(each["numRowsTotal"] for each in operators),
        "state_bytes": sum(each["memoryUsedBytes"] for each in operators),
        "worker_bytes": peak.workers,
        "jvm_bytes": peak.jvm,
    }


def _batches(query: Any) -> list[Any]:
    return [each for each in query.recentProgress if each["numInputRows"]]


def _rate(data: Data, batches: Callable[[], Sequence[int]]) -> int:
    """Wait for the last batch; return rows a second since all queries had their first ones."""
    done = _wait(batches, _WARM_UP)
    began = time.monotonic()
    _wait(batches, data.files)
    left = data.files - sum(done) / len(done)
    return round(data.rows_a_batch * left / (time.monotonic() - began))


def _wait(batches: Callable[[], Sequence[int]], wanted: int) -> Sequence[int]:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while min(found := batches()) < wanted:
        if time.monotonic() > give_up:
            raise TimeoutError(f"a query has done {min(found)} batches of {wanted}")
        time.sleep(_LOOK_SECONDS)
    return found


WAYS: dict[str, Callable[[Data, Path], dict[str, Any]]] = {
    "shared": lambda data, folder: run(shared, data, folder),
    "apart": lambda data, folder: run(apart, data, folder),
    "spark": run_spark,
}


def expected_rows(folder: Path) -> int:
    """Return how many rows DuckDB's batch queries have together."""
    with duckdb.connect() as con:
        for side in _WORKLOAD.data.sides:
            con.execute(f"CREATE VIEW {side} AS SELECT * FROM read_parquet('{folder / side}/*.parquet')")
        counts = " UNION ALL ".join(f"SELECT count(*) AS n FROM ({sql_of(sides)})" for sides in _QUERIES)
        ((rows,),) = con.execute(f"SELECT sum(n) FROM ({counts})").fetchall()
    return int(rows)


def main() -> None:
    """Run all ways, or as a child process one of them, and print a table and a line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=count, default=2_000_000)
    arguments.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    arguments.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    data = Data(options.rows, 10, sides="lrm")
    folder = write_streams(streams_folder(), data)
    if options.child:
        (way,) = options.ways
        print(json.dumps(WAYS[way](data, folder)))
        return
    expected = expected_rows(folder)
    figures = {}
    print(f"three queries over three streams of {options.rows:,} rows each\n")
    print("| way | rows/s | state rows | state | workers | JVM |")
    print("|---|---|---|---|---|---|")
    for way in options.ways:
        command = [
            sys.executable,
            "-m",
            "benchmarks.bench_shared_stores",
            "--child",
            "--rows",
            str(options.rows),
            "--ways",
            way,
        ]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        if found["rows_out"] != expected:
            raise SystemExit(f"{way} gives {found['rows_out']:,} rows, DuckDB {expected:,}")
        figures[way] = found
        sizes = [f"{found[name] / 1e6:,.0f} MB" for name in ("state_bytes", "worker_bytes", "jvm_bytes")]
        print(f"| {way} | {found['rows_per_s']:,} | {found['state_rows']:,} | {' | '.join(sizes)} |")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
