"""Rows of the side output into streams: SETTINGS late_rows = 'STREAM', evicted_rows = 'STREAM'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.runtime.storage import Storage


class Log(Protocol):
    """Appends rows once per key."""

    def append_frame(self, frame: DataFrame, key: str) -> bool:
        """Append rows, unless ``key`` was appended before."""


def keep_side_rows(spark: SparkSession, side_folder: str, batch_id: int, logs: Mapping[str, Log], key: str) -> None:
    """Append the side rows of a batch, which its tasks have written to files, to the logs of their kinds."""
    prefix = f"batch-{batch_id}-"
    paths = [f"{side_folder}/{name}" for name in Storage(spark).names(side_folder) if name.startswith(prefix)]
    if not paths:
        return
    rows = spark.read.schema("kind STRING, source STRING, reason STRING, raw STRING").json(paths)
    for kind, log in logs.items():
        # one stream may store both kinds
        log.append_frame(rows.where(F.col("kind") == kind).select("source", "reason", "raw"), f"{key}-{kind}")
