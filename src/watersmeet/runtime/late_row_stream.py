"""Late rows into a stream: SETTINGS late_rows = 'STREAM'."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from watersmeet.runtime.storage import Storage


class Log(Protocol):
    """Appends rows once per key."""

    def append_frame(self, frame: DataFrame, key: str) -> bool:
        """Append rows, unless ``key`` was appended before."""


def keep_late_rows(spark: SparkSession, side_folder: str, batch_id: int, log: Log, key: str) -> None:
    """Append the late rows of a batch, which its tasks have written to files, to a log."""
    prefix = f"batch-{batch_id}-"
    paths = [f"{side_folder}/{name}" for name in Storage(spark).names(side_folder) if name.startswith(prefix)]
    if not paths:
        return
    rows = spark.read.schema("kind STRING, source STRING, reason STRING, raw STRING").json(paths)
    log.append_frame(rows.where("kind = 'late'").select("source", "reason", "raw"), key)
