"""Temporal and ASOF joins of two streams: rows a second by Watersmeet, and by Flink where it is installed.

    python benchmarks/bench_asof_join.py [--join temporal|asof] [--rows N] [--files N] [--keys N] [--flink PYTHON]

Each left row meets the newest right row of its key at or before its time (a left join).  ``temporal`` is FOR
SYSTEM_TIME AS OF, ``asof`` the same with a tolerance of 60 s.  Watersmeet runs with RocksDB state over Parquet files,
one a side and batch; the steady state leaves out the first three batches and the last.  ``--flink`` names a Python with
apache-flink, whose own temporal join runs over rows of the same number and keys that its generator makes; its figure
includes start-up.  Results are checked against DuckDB's batch answer, or no figure is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.bench_interval_join import SETTINGS
from benchmarks.streams import write_streams

TOLERANCE = 60


def run_watersmeet(data: Path, join: str) -> dict[str, Any]:
    """The join; what its batches took, and sums over its results."""
    from pyspark.sql import functions as F

    import watersmeet

    session = watersmeet.connect(workspace=data / "workspace", master="local[2]", config=SETTINGS)
    spark = session.spark
    sides = []
    for side in "lr":
        schema = spark.read.parquet(str(data / side)).schema
        sides.append(spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data / side)))
    frame = join_of(watersmeet, join, *sides)
    frame = frame.observe("check", F.count("*").alias("rows"), F.sum("l_id").alias("l"), F.sum("r_id").alias("r"))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    steady = progress[3:-1] or progress
    millis = [each["durationMs"]["triggerExecution"] for each in progress]
    rows = sum(each["numInputRows"] for each in steady)
    sums = {name: sum(each["observedMetrics"]["check"][name] or 0 for each in progress) for name in ("rows", "l", "r")}
    return {
        "rows_per_s": round(rows / sum(each["durationMs"]["triggerExecution"] for each in steady) * 1000),
        "median_batch_ms": statistics.median(millis),
        "batch_ms": millis,
        "sums": sums,
    }


def join_of(watersmeet: Any, join: str, left: Any, right: Any) -> Any:
    """The join of two streaming DataFrames."""
    common = {"on": [("l_key", "r_key")], "how": "left", "time": ("l_ts", "r_ts"), "delay": "1 second"}
    if join == "temporal":
        return watersmeet.temporal_join(left, right, **common)
    return watersmeet.asof_join(left, right, tolerance=f"{TOLERANCE} seconds", **common)


def batch_answer(data: Path, join: str) -> dict[str, int]:
    """DuckDB's sums over the rows that are final: those a second and the disorder behind the newest."""
    near = "" if join == "temporal" else f"AND l_ts - r_ts <= INTERVAL {TOLERANCE} SECONDS"
    sql = f"""
        WITH f AS (SELECT least((SELECT max(l_ts) FROM l), (SELECT max(r_ts) FROM r)) - INTERVAL 1 SECOND AS t)
        SELECT count(*), sum(l_id), sum(CASE WHEN r_ts IS NOT NULL {near} THEN r_id END)
        FROM (SELECT * FROM l WHERE l_ts < (SELECT t FROM f)) AS l ASOF LEFT JOIN r ON l_key = r_key AND l_ts >= r_ts"""
    con = duckdb.connect()
    for side in "lr":
        con.execute(f"CREATE VIEW {side} AS SELECT * FROM read_parquet('{data / side}/*.parquet')")
    ((rows, left, right),) = con.execute(sql).fetchall()
    return {"rows": rows, "l": int(left), "r": int(right)}


def main() -> None:
    """Run both sides and print a Markdown table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", choices=["temporal", "asof"], default="temporal")
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows a side")
    parser.add_argument("--files", type=int, default=10, help="files (batches) a side")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--flink", type=Path, help="a Python with apache-flink, and after it the script to run")
    parser.add_argument("--flink-script", type=Path, default=Path("../shared/peers/flink_joins.py"))
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "watersmeet-bench")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = given.data / f"{given.rows}-{given.keys}-{given.files}"
    if given.alone:
        print(json.dumps(run_watersmeet(folder, given.join)))
        return
    write_streams(folder, rows=given.rows, keys=given.keys, files=given.files)
    command = [sys.executable, __file__, *sys.argv[1:], "--alone"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=3600)
    ours = json.loads(done.stdout.strip().splitlines()[-1])
    if ours["sums"] != (expected := batch_answer(folder, given.join)):
        raise SystemExit(f"the results differ from DuckDB's, so there is nothing to tell: {ours['sums']}, {expected}")
    print(f"{given.join} join, 2 x {given.rows:,} rows, {given.keys:,} keys, RocksDB state\n")
    print("| engine | rows/s | median batch | output rows |\n|---|---|---|---|")
    print(
        f"| watersmeet, steady state | {ours['rows_per_s']:,} | {ours['median_batch_ms']:,.0f} ms | "
        f"{ours['sums']['rows']:,} |"
    )
    found: dict[str, Any] = {"watersmeet": ours}
    if given.flink is not None:
        seconds = _flink(given.flink, given.flink_script, given.rows, given.keys)
        rate = round(2 * given.rows / seconds)
        print(f"| flink, heap state, with start-up | {rate:,} | | |\n\nratio: {ours['rows_per_s'] / rate:.1f}")
        found |= {"flink": rate, "ratio": round(ours["rows_per_s"] / rate, 2)}
    print(json.dumps(found))


def _flink(python: Path, script: Path, rows: int, keys: int) -> float:
    started = time.monotonic()
    subprocess.run([python, script, "temporal", "hashmap", str(rows), str(keys), "2"], check=True, timeout=3600)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
