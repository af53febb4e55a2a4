"""The inner windowed join of two streams: Watersmeet and Spark's own operator, in one run, with equal settings.

    python benchmarks/bench_interval_join.py [--rows N] [--files N] [--keys N] [--within SECONDS] [--how inner|left|…]

Both sides run in a process of their own, one after the other, over the same files: one file a side and batch, RocksDB
state with changelog checkpointing, the same master, shuffle partitions, checkpoint manager, trigger and sink.  The
steady state leaves out the first three batches and the last.  Output rows must be equal, or no figure is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.streams import write_streams

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "8g",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # the default starts a process for each small file of the checkpoint (for our side and Spark's alike)
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_SPARK_KINDS = {"inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "leftsemi"}


def run_watersmeet(data: Path, how: str, within: int) -> dict[str, Any]:
    """The join by Watersmeet; what the timing shows."""
    import watersmeet

    session = watersmeet.connect(workspace=data / "workspace", master="local[2]", config=SETTINGS)
    left, right = (_side(session.spark, data, side) for side in "lr")
    frame = watersmeet.interval_join(
        left,
        right,
        on=[("l_key", "r_key")],
        within=f"{within} seconds",
        how=how,  # type: ignore[arg-type]
        time=("l_ts", "r_ts"),
        delay="1 second",
    )
    return _time(frame)


def run_spark(data: Path, how: str, within: int) -> dict[str, Any]:
    """The same by Spark's own stream-stream join."""
    from pyspark.sql import functions as F

    import watersmeet

    session = watersmeet.connect(workspace=data / "workspace", master="local[2]", config=SETTINGS)
    left = _side(session.spark, data, "l").withWatermark("l_ts", "1 second")
    right = _side(session.spark, data, "r").withWatermark("r_ts", "1 second")
    span = f"INTERVAL {within} SECONDS"
    condition = F.expr(f"l_key = r_key AND r_ts BETWEEN l_ts - {span} AND l_ts + {span}")
    return _time(left.join(right, condition, _SPARK_KINDS[how]))


def _side(spark: Any, data: Path, side: str) -> Any:
    schema = spark.read.parquet(str(data / side)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data / side))


def _time(frame: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        out = sum(max(each["sink"]["numOutputRows"], 0) for each in query.recentProgress)
    steady = progress[3:-1] or progress
    millis = [each["durationMs"]["triggerExecution"] for each in progress]
    rows = sum(each["numInputRows"] for each in steady)
    return {
        "rows_per_s": round(rows / sum(each["durationMs"]["triggerExecution"] for each in steady) * 1000),
        "median_batch_ms": statistics.median(millis),
        "batch_ms": millis,
        "rows_out": out,
    }


def main() -> None:
    """Run both sides and print a Markdown table, then JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows a side")
    parser.add_argument("--files", type=int, default=10, help="files (batches) a side")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--within", type=int, default=5, help="seconds")
    parser.add_argument("--how", choices=sorted(_SPARK_KINDS), default="inner")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "watersmeet-bench")
    parser.add_argument("--side", choices=["watersmeet", "spark"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = given.data / f"{given.rows}-{given.keys}-{given.files}"
    if given.side:
        run = run_watersmeet if given.side == "watersmeet" else run_spark
        print(json.dumps(run(folder, given.how, given.within)))
        return
    write_streams(folder, rows=given.rows, keys=given.keys, files=given.files)
    found = {}
    for side in ("watersmeet", "spark"):
        command = [sys.executable, __file__, *sys.argv[1:], "--side", side]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=3600)
        found[side] = json.loads(done.stdout.strip().splitlines()[-1])
    outputs = {side: result["rows_out"] for side, result in found.items()}
    if len(set(outputs.values())) != 1:
        raise SystemExit(f"the outputs differ, so there is nothing to compare: {outputs}")
    ratio = found["watersmeet"]["rows_per_s"] / found["spark"]["rows_per_s"]
    print(f"{given.how} join, 2 x {given.rows:,} rows, {given.keys:,} keys, within {given.within} s, RocksDB state\n")
    print("| engine | rows/s, steady state | median batch | output rows |\n|---|---|---|---|")
    for side, result in found.items():
        print(f"| {side} | {result['rows_per_s']:,} | {result['median_batch_ms']:,.0f} ms | {result['rows_out']:,} |")
    print(f"\nratio: {ratio:.1f}\n")
    print(json.dumps({"ratio": round(ratio, 2), **found}))


if __name__ == "__main__":
    main()
