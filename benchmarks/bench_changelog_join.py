"""The join of two streams whose rows change: changed rows a second by Watersmeet, and by Flink where it is installed.

    python benchmarks/bench_changelog_join.py [--rows N] [--files N] [--keys N] [--flink PYTHON]

Each row replaces the one before it with its key, on both sides; the inner join of the newest rows comes out as
corrections.  Watersmeet runs with RocksDB state over Parquet files, one a side and batch; the steady state leaves out
the first three batches and the last.  ``--flink`` names a Python with apache-flink, whose own join of two latest-row
views runs over rows of the same number and keys that its generator makes; its figure includes start-up.  What the
changes add up to is checked against DuckDB's batch answer over the newest rows, or no figure is printed.
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


def run_watersmeet(data: Path) -> dict[str, Any]:
    """The join; what its batches took, and weighted sums over its changes."""
    from pyspark.sql import functions as F

    import watersmeet

    session = watersmeet.connect(workspace=data / "workspace", master="local[2]", config=SETTINGS)
    spark = session.spark
    sides = []
    for side in "lr":
        schema = spark.read.parquet(str(data / side)).schema
        sides.append(spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data / side)))
    frame = watersmeet.changelog_join(
        *sides,
        on=[("l_key", "r_key")],
        left_key="l_key",
        right_key="r_key",
        time=("l_ts", "r_ts"),
        order=("l_id", "r_id"),
    ).select("l_id", "r_id", "l_key", "l_val", "r_val", "_tp_delta")
    weight = F.col("_tp_delta").cast("bigint")
    sums = [F.sum(weight * F.col(name)).alias(name) for name in ("l_id", "r_id", "l_key")]
    frame = frame.observe("check", F.count("*").alias("changes"), F.sum(weight).alias("rows"), *sums)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    steady = progress[3:-1] or progress
    millis = [each["durationMs"]["triggerExecution"] for each in progress]
    rows = sum(each["numInputRows"] for each in steady)
    checked = [each["observedMetrics"]["check"].asDict() for each in progress]
    totals = {name: sum(each[name] or 0 for each in checked) for name in checked[0]}
    return {
        "rows_per_s": round(rows / sum(each["durationMs"]["triggerExecution"] for each in steady) * 1000),
        "median_batch_ms": statistics.median(millis),
        "batch_ms": millis,
        "changes": totals.pop("changes"),
        "sums": totals,
    }


def batch_answer(data: Path) -> dict[str, int]:
    """DuckDB's sums over the join of the newest rows."""
    con = duckdb.connect()
    for side in "lr":
        con.execute(
            f"CREATE VIEW {side} AS SELECT DISTINCT ON ({side}_key) * FROM read_parquet('{data / side}/*.parquet') "
            f"ORDER BY {side}_key, {side}_ts DESC, {side}_id DESC"
        )
    sql = "SELECT count(*), sum(l_id), sum(r_id), sum(l_key) FROM l JOIN r ON l_key = r_key"
    ((rows, l_id, r_id, key),) = con.execute(sql).fetchall()
    return {"rows": rows, "l_id": int(l_id), "r_id": int(r_id), "l_key": int(key)}


def main() -> None:
    """Run both sides and print a Markdown table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
        print(json.dumps(run_watersmeet(folder)))
        return
    write_streams(folder, rows=given.rows, keys=given.keys, files=given.files)
    command = [sys.executable, __file__, *sys.argv[1:], "--alone"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=3600)
    ours = json.loads(done.stdout.strip().splitlines()[-1])
    if ours["sums"] != (expected := batch_answer(folder)):
        raise SystemExit(f"the results differ from DuckDB's, so there is nothing to tell: {ours['sums']}, {expected}")
    print(f"changelog join, 2 x {given.rows:,} changes, {given.keys:,} keys, RocksDB state\n")
    print("| engine | changed rows/s | median batch | changes out |\n|---|---|---|---|")
    print(
        f"| watersmeet, steady state | {ours['rows_per_s']:,} | {ours['median_batch_ms']:,.0f} ms | "
        f"{ours['changes']:,} |"
    )
    found: dict[str, Any] = {"watersmeet": ours}
    if given.flink is not None:
        started = time.monotonic()
        arguments = ["changelog", "hashmap", str(given.rows), str(given.keys), "2"]
        subprocess.run([given.flink, given.flink_script, *arguments], check=True, timeout=3600)
        rate = round(2 * given.rows / (time.monotonic() - started))
        print(f"| flink, heap state, with start-up | {rate:,} | | |\n\nratio: {ours['rows_per_s'] / rate:.1f}")
        found |= {"flink": rate, "ratio": round(ours["rows_per_s"] / rate, 2)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
