"""A batch DataFrame as a stream that is all there: its rows are written out once, and after them its end."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.columns import STORED_FRONTIER
from watersmeet.kernels.api import FOREVER


def snapshot(frame: DataFrame, folder: Path) -> DataFrame:
    """Write the rows that the frame has now, as Parquet; they come back as a streaming DataFrame.

    With the last of them comes the end of its time, so that nothing waits for more.
    """
    spark = frame.sparkSession
    rows = frame.withColumn(STORED_FRONTIER, F.lit(None).cast("bigint"))
    end = [F.lit(None).cast(field.dataType).alias(field.name) for field in frame.schema]
    marker = spark.range(1).select(*end, F.lit(FOREVER).cast("bigint").alias(STORED_FRONTIER))
    rows.unionByName(marker).write.parquet(str(folder))
    return spark.readStream.schema(rows.schema).parquet(str(folder))
