"""A batch DataFrame as a finite stream."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.columns import STORED_FRONTIER
from watersmeet.kernels.api import FOREVER
from watersmeet.runtime.shared_folders import SHARED_OR_STORE, require_shared
from watersmeet.runtime.store_folder import Place


def snapshot(frame: DataFrame, folder: Place) -> DataFrame:
    """Write the frame's current rows as Parquet and return them as a streaming DataFrame.

    A last row carries the final frontier, so that no operator waits for more.  Raises ``ConfigError`` if there are
    workers that do not see the folder.
    """
    spark = frame.sparkSession
    if isinstance(folder, Path):
        require_shared(spark, f"file:{folder.parent.absolute()}", "the workspace's folder", SHARED_OR_STORE)
    rows = frame.withColumn(STORED_FRONTIER, F.lit(None).cast("bigint"))
    end = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
    marker = spark.range(1).select(*end, F.lit(FOREVER).cast("bigint").alias(STORED_FRONTIER))
    rows.unionByName(marker).write.parquet(str(folder))
    return spark.readStream.schema(rows.schema).parquet(str(folder))
