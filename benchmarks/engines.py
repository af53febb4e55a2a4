"""Runs one workload with one engine, as a process of its own.

    python -m benchmarks.engines ENGINE WORKLOAD ROWS FOLDER [SETTING=VALUE...]

ENGINE is ``watersmeet``, ``spark`` (its own operator, with the same session settings) or ``spark_defaults`` (with
Spark's settings).  The settings on the command line change the session of ``watersmeet``; a setting without a value
gets Spark's default.  The last line printed is JSON: times of batches, peak memory, state, and sums over the results.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.memory import Peak
from benchmarks.streams import Data, write_streams
from benchmarks.workloads import MARGIN_MICROS, WORKLOADS, Workload

_ESSENTIAL = {
    "spark.driver.memory": "8g",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
SETTINGS = {
    **_ESSENTIAL,
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.buffer.pageSize": "1m",  # as ``connect`` sets it on one machine
    # Spark's default starts a process for each small file of the checkpoint, for Watersmeet and Spark alike.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_MASTER = "local[2]"
_WARM = Data(rows=2_000, files=1)


def run_watersmeet(workload: Workload, folder: Path, changed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run the workload with Watersmeet, with some settings changed."""
    import watersmeet

    config = {**SETTINGS, **_partitions(workload), **(changed or {})}
    with tempfile.TemporaryDirectory() as workspace:
        session = watersmeet.connect(workspace=workspace, master=_MASTER, config=config)
        if workload.warm:
            small = write_streams(folder.parent, _WARM)
            _define(session, workload, small)
            _timed(_frame(session, workload), workload)
            for side in workload.data.sides:
                session.sql(f"DROP STREAM {side}")
        _define(session, workload, folder)
        return _timed(_frame(session, workload), workload)


def _frame(session: Any, workload: Workload) -> Any:
    return session.sql(workload.sql).frame


def _define(session: Any, workload: Workload, folder: Path) -> None:
    for definition in definitions(workload, folder):
        session.sql(definition)


def definitions(workload: Workload, folder: Path) -> list[str]:
    """Return the CREATE statements for the streams and tables of a workload, whose files are in ``folder``."""
    found = []
    for side in workload.data.sides:
        columns = workload.data.columns(side)
        path = table_path(folder, side) if side in workload.tables else folder / side
        files = f"connector = 'files', format = 'parquet', path = '{path}'"
        if side in workload.tables:
            found.append(f"CREATE TABLE {side} ({columns}) WITH ({files})")
            continue
        watermark = f"WATERMARK FOR {side}_ts AS {side}_ts - INTERVAL '1' SECOND"
        keyed = side in workload.primary_keys or side in workload.versioned
        key = f", PRIMARY KEY ({side}_key)" if keyed else ""
        mode = " SETTINGS mode = 'versioned_kv'" if keyed else ""
        found.append(
            f"CREATE STREAM {side} ({columns}, {watermark}{key}) WITH ({files}, max_files_per_trigger = '1'){mode}"
        )
    return found


def run_spark(workload: Workload, folder: Path, settings: dict[str, str]) -> dict[str, Any]:
    """Run the workload with Spark's own operator."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(_MASTER).config("spark.ui.enabled", "false")
    for name, value in {**settings, **_partitions(workload), "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def sides(below: Path) -> list[Any]:
        found = []
        for side in workload.data.sides:
            schema = spark.read.parquet(str(below / side)).schema
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(below / side))
            found.append(stream.withWatermark(f"{side}_ts", "1 second"))
        return found

    assert workload.spark is not None
    if workload.warm:
        _timed(workload.spark(*sides(write_streams(folder.parent, _WARM))), workload)
    return _timed(workload.spark(*sides(folder)), workload)


def _partitions(workload: Workload) -> dict[str, str]:
    return {"spark.sql.shuffle.partitions": str(workload.partitions)}


def _timed(frame: Any, workload: Workload) -> dict[str, Any]:
    """Run a query to the end of its input."""
    from pyspark.sql import functions as F

    weight = F.col("_tp_delta").cast("bigint") if "_tp_delta" in frame.columns else F.lit(1)
    if workload.cutoff:
        weight = F.when(F.unix_micros("at") < workload.data.end_micros - MARGIN_MICROS, weight)
    sums = [F.sum(weight * F.col(name)).alias(name) for name in ("l_id", "r_id")]
    frame = frame.observe("check", F.count("*").alias("rows_out"), F.sum(weight).alias("rows"), *sums)
    checkpoint = tempfile.mkdtemp()
    started = time.monotonic()
    try:
        with Peak() as peak:
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seconds = time.monotonic() - started
            progress = query.recentProgress
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    checked = [each["observedMetrics"]["check"].asDict() for each in progress if "check" in each["observedMetrics"]]
    totals = {name: sum(each[name] or 0 for each in checked) for name in ("rows_out", "rows", "l_id", "r_id")}
    held, loaded = ([_total(each, what) for each in progress] for what in (".state_bytes", ".loaded_bytes"))
    return {
        "batch_ms": [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]],
        "seconds": seconds,
        "jvm_bytes": peak.jvm,
        "worker_bytes": peak.workers,
        "state_bytes": sum(each["memoryUsedBytes"] for each in progress[-1]["stateOperators"]),
        "loaded_bytes": sum(loaded),
        "hit_rate": 1 - sum(loaded) / sum(held[:-1]) if any(held[:-1]) else None,
        "rows_out": totals.pop("rows_out"),
        "sums": totals,
    }


def _total(progress: Any, what: str) -> int:
    """Return the sum of a counter over all operators of Watersmeet; the metrics of a DataFrame have a unique label."""
    from watersmeet.runtime.metrics import METRICS, counters_of

    labels = [name.removeprefix(METRICS) for name in progress["observedMetrics"] if name.startswith(METRICS)]
    return sum(value for label in labels for name, value in counters_of(progress, label).items() if name.endswith(what))


def batch_answer(workload: Workload, folder: Path) -> dict[str, int]:
    """Return the sums over the results of the batch query in DuckDB."""
    with duckdb.connect() as con:
        con.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        for side in workload.data.sides:
            path = table_path(folder, side) if side in workload.tables else folder / side / "*.parquet"
            rows = f"SELECT * FROM read_parquet('{path}')"
            if side in workload.primary_keys:
                newest = f"{side}_key, {side}_ts DESC, {side}_id DESC"
                rows = f"SELECT DISTINCT ON ({side}_key) * FROM ({rows}) ORDER BY {newest}"
            con.execute(f"CREATE VIEW {side} AS {rows}")
        where = f' WHERE epoch_us("at") < {workload.data.end_micros - MARGIN_MICROS}' if workload.cutoff else ""
        sql = f"SELECT count(*), sum(l_id), sum(r_id) FROM ({workload.batch}){where}"
        ((rows_, l_id, r_id),) = con.execute(sql).fetchall()
    return {"rows": rows_, "l_id": int(l_id or 0), "r_id": int(r_id or 0)}


def table_path(folder: Path, side: str) -> Path:
    """Return a table with one row per key, made from a stream's rows; create it if it does not exist."""
    path = folder / f"{side}_table.parquet"
    if not path.exists():
        with duckdb.connect() as con:
            con.execute("SET enable_progress_bar = false")
            first = (
                f"SELECT DISTINCT ON ({side}_key) * FROM read_parquet('{folder / side}/*.parquet') ORDER BY {side}_id"
            )
            partial = path.with_name(f".{path.name}")
            con.execute(f"COPY ({first}) TO '{partial}' (FORMAT parquet)")
        partial.rename(path)
    return path


def main() -> None:
    """Run the engine and the workload that the arguments name."""
    engine, name, rows, folder, *changed = sys.argv[1:]
    workload = WORKLOADS[name].of_rows(int(rows))
    match engine:
        case "watersmeet":
            found = run_watersmeet(workload, Path(folder), dict(each.split("=", 1) for each in changed))
        case "spark":
            found = run_spark(workload, Path(folder), SETTINGS)
        case _:
            found = run_spark(workload, Path(folder), _ESSENTIAL)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
