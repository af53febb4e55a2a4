"""Runs queries of Nexmark with Watersmeet or with Spark's own operators.

    python -m benchmarks.nexmark.engines ENGINE measure FOLDER QUERY
    python -m benchmarks.nexmark.engines ENGINE write FOLDER OUT QUERY...

ENGINE is ``watersmeet`` or ``spark``; FOLDER has the streams.  ``measure`` prints JSON: times of batches, the largest
state, rows.  ``write`` runs one query after the other and writes the results of each below OUT, as Parquet; it prints
what failed, by query.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.engines import SETTINGS, counter_total
from benchmarks.nexmark import queries, spark_queries
from benchmarks.nexmark.events import STREAMS
from benchmarks.nexmark.generator import SIDE_INPUT

#: The column with the number of the batch, in the results of Spark's queries in update mode.
BATCH = "_batch"
_SETTINGS = {**SETTINGS, "spark.sql.shuffle.partitions": "2"}
_MASTER = "local[2]"
_PATIENCE_SECONDS = 600


def _watersmeet(folder: Path, workspace: str) -> Any:
    """A session with the streams."""
    import watersmeet

    session = watersmeet.connect(workspace=workspace, master=_MASTER, config=_SETTINGS)
    for definition in queries.definitions(folder):
        session.sql(definition)
    return session


def _spark(folder: Path) -> Any:
    """Spark with the streams as views."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(_MASTER).config("spark.ui.enabled", "false")
    for name, value in {**_SETTINGS, "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _define_views(spark, folder)
    return spark


def _define_views(spark: Any, folder: Path) -> None:
    for name in STREAMS:
        schema = spark.read.parquet(str(folder / name)).schema
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        rows.withWatermark("date_time", "4 seconds").createOrReplaceTempView(name)
    spark.read.parquet(str(folder / SIDE_INPUT)).createOrReplaceTempView(SIDE_INPUT)


def measure(engine: str, folder: Path, name: str) -> dict[str, Any]:
    """Run a query to the end of its input twice, and drop its results; return the figures of the second run."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        session = _watersmeet(folder, f"{scratch}/workspace") if engine == "watersmeet" else _spark(folder)
        for number in range(2):
            if engine == "watersmeet":
                frame = session.sql(queries.text(name)).frame
            else:
                frame = session.sql(spark_queries.text(name))
            updated = engine == "spark" and name in spark_queries.UPDATED
            found = _timed(frame, f"{scratch}/checkpoint-{number}", updated=updated)
    return found


def _timed(frame: Any, checkpoint: str, *, updated: bool) -> dict[str, Any]:
    from pyspark.sql import functions as F

    frame = frame.observe("check", F.count("*").alias("rows_out"))
    writer = frame.writeStream.format("noop").outputMode("update" if updated else "append")
    started = time.monotonic()
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.monotonic() - started
    progress = query.recentProgress
    checked = [each["observedMetrics"]["check"]["rows_out"] for each in progress if "check" in each["observedMetrics"]]
    return {
        "batch_ms": [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]],
        "seconds": seconds,
        "state_rows": max((_state(each, ".state_rows", "numRowsTotal") for each in progress), default=0),
        "state_bytes": max((_state(each, ".state_bytes", "memoryUsedBytes") for each in progress), default=0),
        "rows_out": sum(checked),
    }


def _state(progress: Any, counter: str, of_spark: str) -> int:
    """The size of the state after a batch: that of Watersmeet's operators, or of Spark's."""
    own = counter_total(progress, counter)
    return own or sum(each[of_spark] for each in progress["stateOperators"] if not _is_ours(progress))


def _is_ours(progress: Any) -> bool:
    from watersmeet.runtime.metrics import METRICS

    return any(name.startswith(METRICS) for name in progress["observedMetrics"])


def write(engine: str, folder: Path, out: Path, names: list[str]) -> dict[str, str]:
    """Run queries one after the other and write their results; return what failed."""
    if engine == "watersmeet":
        session = _watersmeet(folder, f"{out}/workspace")
        return _each(names, lambda name: _write_ours(session, out, name))
    spark = _spark(folder)
    return _each(names, lambda name: _write_sparks(spark, out, name))


def _each(names: list[str], run: Callable[[str], None]) -> dict[str, str]:
    failed = {}
    for name in names:
        try:
            run(name)
        except Exception as error:  # noqa: BLE001 - the others run all the same
            failed[name] = str(error)
    return failed


def _write_ours(session: Any, out: Path, name: str) -> None:
    from watersmeet.runtime.query_mode import QueryMode

    files = f"connector = 'files', format = 'parquet', path = '{out / name}', changelog = 'true'"
    for result in session.run(f"CREATE STREAM out_{name} WITH ({files}) AS {queries.text(name)}", QueryMode.BOUNDED):
        if not result.query.wait(_PATIENCE_SECONDS):
            raise TimeoutError(f"{name} runs for more than {_PATIENCE_SECONDS} s")


def _write_sparks(spark: Any, out: Path, name: str) -> None:
    from pyspark.sql import functions as F

    updated = name in spark_queries.UPDATED

    def append(rows: Any, batch: int) -> None:
        if updated:
            rows = rows.withColumn(BATCH, F.lit(batch))
        rows.write.mode("append").parquet(str(out / name))

    writer = spark.sql(spark_queries.text(name)).writeStream.foreachBatch(append)
    writer = writer.outputMode("update" if updated else "append").option("checkpointLocation", f"{out}/{name}-run")
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Do what the arguments say."""
    engine, what, folder, *rest = sys.argv[1:]
    if what == "measure":
        print(json.dumps(measure(engine, Path(folder), rest[0])))
    else:
        print(json.dumps(write(engine, Path(folder), Path(rest[0]), rest[1:])))


if __name__ == "__main__":
    main()
