"""Measures how long the README's first script takes, from command to end, beside the same join in plain PySpark.

    python -m benchmarks.bench_first_result [--times N]

Every engine is a process of its own that starts Spark, and gets the same rows.  ``watersmeet`` is the command line,
with the archive of ``watersmeet prepare`` if there is one.  ``spark`` is Spark's own left join of two streams, without
Python.  ``spark_python`` groups the streams by key in a stateful operator in Python that does nothing: what a query
takes at least whose operators are in Python.  Their rows are in Parquet files, so they have no INSERT.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arguments import count

_README = Path(__file__).parents[1] / "README.md"
_TIME_OUT = 300
_SPARK = """
import os, sys
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import StatefulProcessor

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    .getOrCreate()
)
folder = sys.argv[1]
def stream(name, columns):
    return spark.readStream.schema(columns).parquet(f"{folder}/{name}").withWatermark("ts", "5 seconds")
orders = stream("orders", "order_id INT, customer STRING, ts TIMESTAMP").alias("o")
payments = stream("payments", "order_id INT, status STRING, ts TIMESTAMP").alias("p")
"""
_JOIN = """
within = "o.order_id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL 10 MINUTES AND o.ts + INTERVAL 10 MINUTES"
result = orders.join(payments, expr(within), "left").selectExpr("o.order_id", "o.customer", "p.status")
"""
_PYTHON = """
class Nothing(StatefulProcessor):
    def init(self, handle):
        self.value = handle.getValueState("value", "seen INT")
    def handleInputRows(self, key, rows, timerValues):
        self.value.update((1,))
        yield pd.DataFrame({"order_id": [key[0]]})
    def close(self):
        pass
both = orders.selectExpr("order_id", "customer AS text").unionAll(payments.selectExpr("order_id", "status AS text"))
result = both.groupBy("order_id").transformWithStateInPandas(
    Nothing(), outputStructType="order_id INT", outputMode="Append", timeMode="None")
"""
_RUN = """
query = (result.writeStream.format("console").option("checkpointLocation", f"{folder}/checkpoint")
         .trigger(availableNow=True).start())
query.awaitTermination()
"""


def main() -> None:
    """Run the engines in turn, and print the median and the range of each."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--times", type=count, default=5, help="runs of each engine")
    times = arguments.parse_args().times
    engines: dict[str, Callable[[Path], list[str]]] = {
        "watersmeet": _watersmeet,
        "spark": lambda folder: _pyspark(folder, _JOIN),
        "spark_python": lambda folder: _pyspark(folder, _PYTHON),
    }
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(times):
        for name, command in engines.items():
            with tempfile.TemporaryDirectory() as folder:
                words = command(Path(folder))
                started = time.perf_counter()
                subprocess.run(words, check=True, capture_output=True, cwd=folder, timeout=_TIME_OUT)
                seconds[name].append(time.perf_counter() - started)
    print("\n".join(_lines(seconds)))


def _lines(seconds: dict[str, list[float]]) -> Iterator[str]:
    yield "| engine | median, s | fastest | slowest | vs Watersmeet (×) |\n|---|---|---|---|---|"
    ours = statistics.median(seconds["watersmeet"])
    for name, taken in seconds.items():
        median = statistics.median(taken)
        yield f"| {name} | {median:.1f} | {min(taken):.1f} | {max(taken):.1f} | {median / ours:.2f} |"


def _watersmeet(folder: Path) -> list[str]:
    """The README's command, on its first script."""
    text = _README.read_text(encoding="utf-8")
    found = re.search(r"`first\.sql`:\n```sql\n(.*?)```", text, re.DOTALL)
    assert found is not None, "README has no first.sql"
    (folder / "first.sql").write_text(found[1], encoding="utf-8")
    command = shutil.which("watersmeet", path=str(Path(sys.executable).parent)) or "watersmeet"
    return [command, "run", "first.sql", "--bounded"]


def _pyspark(folder: Path, query: str) -> list[str]:
    """Return a script of PySpark alone, over the same rows in Parquet files."""
    ts = [datetime(2026, 1, 1, 10, minute, tzinfo=UTC) for minute in (0, 1, 4)]
    kinds = pa.int32(), pa.string(), pa.timestamp("us", "UTC")
    for name, text, rows in (
        ("orders", "customer", [(1, "ada", ts[0]), (2, "bob", ts[1])]),
        ("payments", "status", [(1, "paid", ts[2])]),
    ):
        (folder / name).mkdir()
        columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        pq.write_table(pa.table(columns, names=["order_id", text, "ts"]), folder / name / "rows.parquet")
    script = folder / "script.py"
    script.write_text(_SPARK + query + _RUN, encoding="utf-8")
    return [sys.executable, str(script), str(folder)]


if __name__ == "__main__":
    main()
