"""What Watersmeet needs of Spark, tried on Spark Connect: prints a line for each.

    pip install 'pyspark[connect]' .
    PYSPARK_PYTHON=$(which python) python scripts/probe_spark_connect.py

starts a Spark Connect server on this machine, and runs the parts of a query that Watersmeet builds: rows packed by a
Python function, a stateful operator per bucket, results written by batch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

_SECONDS = 180
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.hadoop.fs.s3a.endpoint": "http://store:9000",
}


class _Counts(StatefulProcessor):
    """Counts the rows of a bucket."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._values = handle.getMapState("values", "name STRING", "value BINARY")

    def handleInputRows(  # type: ignore[override]  # the pandas variant passes no Row objects
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        before = self._values.getValue(("rows",))
        count = (int(bytes(before[0])) if before else 0) + sum(map(len, rows))
        self._values.updateValue(("rows",), (str(count).encode(),))
        yield pd.DataFrame({"bucket": [key[0]], "rows": [count]})

    def close(self) -> None:
        """Do nothing."""


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"bucket": pc.bit_wise_and(batch["id"], 1).cast(pa.int32()), "id": batch["id"]})


def _query(spark: SparkSession, folder: str, checkpoint: str) -> DataStreamWriter:
    rows = spark.readStream.schema("id LONG").parquet(f"{folder}/rows")
    counted = (
        rows.mapInArrow(_packed, "bucket INT, id LONG")
        .groupBy("bucket")
        .transformWithStateInPandas(_Counts(), "bucket INT, rows LONG", outputMode="Append", timeMode="None")
        .observe("metrics", F.count(F.lit(1)).alias("rows_out"))
    )
    return counted.writeStream.option("checkpointLocation", f"{folder}/{checkpoint}").trigger(availableNow=True)


def _finished(writer: DataStreamWriter) -> Any:
    query = writer.start()
    if not query.awaitTermination(_SECONDS):
        raise TimeoutError
    if (error := query.exception()) is not None:
        raise error
    return query


def _stateful_query(spark: SparkSession, folder: str) -> str:
    spark.range(10).write.parquet(f"{folder}/rows")
    query = _finished(_query(spark, folder, "first").format("json").option("path", f"{folder}/out"))
    found = sorted((row["bucket"], row["rows"]) for row in spark.read.json(f"{folder}/out").collect())
    return f"{found}, observed {query.lastProgress['observedMetrics']['metrics']}"


def _foreach_batch(spark: SparkSession, folder: str) -> str:
    written: list[int] = []

    def write(frame: DataFrame, batch: int) -> None:
        written.append(batch)
        Path(folder, "pid").write_text(f"{os.getpid()} {frame.count()}")

    _finished(_query(spark, folder, "second").foreachBatch(write))
    process, rows = Path(folder, "pid").read_text().split()
    where = "in this process" if process == str(os.getpid()) else "in a process of the server"
    return f"{rows} rows, {where}; objects of this process have seen the batches {written}"


def _attribute(name: str) -> Callable[[SparkSession, str], object]:
    return lambda spark, folder: getattr(spark, name)


TRIES: dict[str, Callable[[SparkSession, str], object]] = {
    "functions over Arrow, state, counters": _stateful_query,
    "a function for each batch": _foreach_batch,
    "an environment for some functions, another Python (sparkContext)": _attribute("sparkContext"),
    "Hadoop's file systems (_jvm)": _attribute("_jvm"),
    "Hadoop's settings (_jsparkSession)": _attribute("_jsparkSession"),
    "a setting of an object store (conf.get)": lambda spark, _: spark.conf.get("spark.hadoop.fs.s3a.endpoint"),
    "the functions that Spark knows": lambda spark, _: spark.catalog.functionExists("xxhash64"),
}


def main() -> None:
    """Try each."""
    builder = SparkSession.builder.remote("local[2]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    folder = tempfile.mkdtemp(prefix="watersmeet-probe-")
    for name, attempt in TRIES.items():
        try:
            outcome = f"works: {attempt(spark, folder)}"
        except Exception as error:  # noqa: BLE001  # whatever is missing, it is said
            outcome = f"missing: {str(error).strip().splitlines()[0][:90]}"
        print(f"{name}: {outcome}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
