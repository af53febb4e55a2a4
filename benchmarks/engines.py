"""Runs one workload with one engine, as a process of its own.

    python -m benchmarks.engines ENGINE WORKLOAD ROWS FOLDER [--broker ADDRESS --jars JARS] [SETTING=VALUE...]

ENGINE is ``watersmeet``, ``spark`` (its own operator, with the same session settings) or ``spark_defaults`` (with
Spark's settings).  The settings on the command line change the session of ``watersmeet``; a setting without a value
gets Spark's default.  A workload over Kafka needs a broker with its topics.  The last line printed is JSON: times of
batches, peak memory, state, and sums over the results.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.arguments import setting
from benchmarks.memory import Peak
from benchmarks.streams import Data, write_streams
from benchmarks.topics import Kafka, add_arguments, kafka_of, read_with_spark, stream_options
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


def run_watersmeet(workload: Workload, folder: Path, kafka: Kafka | None, changed: Mapping[str, str]) -> dict[str, Any]:
    """Run the workload with Watersmeet, with some settings changed."""
    import watersmeet

    config = {**SETTINGS, **_of_workload(workload, kafka), **changed}
    with tempfile.TemporaryDirectory() as workspace:
        session = watersmeet.connect(workspace=workspace, master=_MASTER, config=config)
        if workload.warm:
            small = write_streams(folder.parent, _WARM)
            _define(session, workload, small, kafka)
            _timed(_frame(session, workload), workload)
            for side in workload.data.sides:
                session.sql(f"DROP STREAM {side}")
        _define(session, workload, folder, kafka)
        return _timed(_frame(session, workload), workload)


def _frame(session: Any, workload: Workload) -> Any:
    return session.sql(workload.sql).frame


def _define(session: Any, workload: Workload, folder: Path, kafka: Kafka | None) -> None:
    for definition in definitions(workload, folder, kafka):
        session.sql(definition)


def definitions(workload: Workload, folder: Path, kafka: Kafka | None = None, *, files: int = 1) -> list[str]:
    """Return the CREATE statements for the streams and tables of a workload.

    Their rows are in files in ``folder``, of which a batch takes so many; or in topics, if the workload is one over
    Kafka.
    """
    found = []
    for side in workload.data.sides:
        columns = workload.data.columns(side)
        path = table_path(folder, side) if side in workload.tables else folder / side
        options = {"connector": "files", "format": "parquet", "path": str(path)}
        if side in workload.tables:
            found.append(f"CREATE TABLE {side} ({columns}) WITH ({_listed(options)})")
            continue
        if kafka is not None:
            options = stream_options(workload, side, kafka)
        else:
            options["max_files_per_trigger"] = str(files)
        watermark = f"WATERMARK FOR {side}_ts AS {side}_ts - INTERVAL '1' SECOND"
        keyed = side in workload.primary_keys or side in workload.versioned
        key = f", PRIMARY KEY ({side}_key)" if keyed else ""
        mode = " SETTINGS mode = 'versioned_kv'" if keyed else ""
        found.append(f"CREATE STREAM {side} ({columns}, {watermark}{key}) WITH ({_listed(options)}){mode}")
    return found


def _listed(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = '{value}'" for name, value in options.items())


def run_spark(workload: Workload, folder: Path, kafka: Kafka | None, settings: Mapping[str, str]) -> dict[str, Any]:
    """Run the workload with Spark's own operator."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(_MASTER).config("spark.ui.enabled", "false")
    for name, value in {**settings, **_of_workload(workload, kafka), "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def sides(below: Path) -> list[Any]:
        found = []
        for side in workload.data.sides:
            if kafka is not None:
                stream = read_with_spark(spark, workload, side, kafka)
            else:
                schema = spark.read.parquet(str(below / side)).schema
                stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(below / side))
            found.append(stream.withWatermark(f"{side}_ts", "1 second"))
        return found

    assert workload.spark is not None
    if workload.warm:
        _timed(workload.spark(*sides(write_streams(folder.parent, _WARM))), workload)
    return _timed(workload.spark(*sides(folder)), workload)


def _of_workload(workload: Workload, kafka: Kafka | None) -> dict[str, str]:
    """Return the settings of Spark that depend on the workload."""
    settings = {"spark.sql.shuffle.partitions": str(workload.partitions)}
    return settings if kafka is None else {**settings, "spark.jars": ",".join(kafka.jars)}


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
    held, loaded = ([counter_total(each, what) for each in progress] for what in (".state_bytes", ".loaded_bytes"))
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


def counter_total(progress: Any, what: str) -> int:
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
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("engine", choices=["watersmeet", "spark", "spark_defaults"])
    arguments.add_argument("workload")
    arguments.add_argument("rows", type=int)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("settings", nargs="*", type=setting, metavar="SETTING=VALUE")
    add_arguments(arguments)
    options = arguments.parse_intermixed_args()
    workload = WORKLOADS[options.workload].of_rows(options.rows)
    kafka = kafka_of(options)
    match options.engine:
        case "watersmeet":
            changed = dict(each.split("=", 1) for each in options.settings)
            found = run_watersmeet(workload, options.folder, kafka, changed)
        case "spark":
            found = run_spark(workload, options.folder, kafka, SETTINGS)
        case _:
            found = run_spark(workload, options.folder, kafka, _ESSENTIAL)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
