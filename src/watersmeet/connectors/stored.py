"""What a stream holds now, from a batch source frame: the rows that a query over ``table(name)`` sees."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, SEQUENCE, TP_DELTA, TP_TIME, spark_name
from watersmeet.engine.pack import GREATEST_TIME
from watersmeet.runtime.source_columns import internal_time

_TIME, _PLACE, _RANK = "_wm_time", "_wm_place", "_wm_rank"


def stored_rows(source: DataFrame, stream: StreamDef, *, with_arrival: bool = False) -> DataFrame:
    """The declared columns, without ``_tp_delta``, of the rows that hold; ``with_arrival`` also their ``_tp_time``.

    All rows of a stream that appends.  Of one that changes the newest row of each primary key, in order of (event time,
    place in the source); none where that is a delete.  Rows that a streaming query would set aside are left out.
    """
    rows = source.where(F.col(BAD).isNull()) if BAD in source.columns else source
    if stream.changes:
        # rows that share a place (lines of a file's block, images of one change) keep the order in which they are read
        rows = rows.withColumn(_PLACE, F.monotonically_increasing_id())
    rows = rows.withColumn(_TIME, internal_time(stream.event_time))
    rows = rows.where(F.col(_TIME).between(-GREATEST_TIME, GREATEST_TIME))
    if stream.changes:
        rows = _newest(rows, stream).where(F.col(TP_DELTA) == 1)
    names = [column.name for column in stream.columns if column.name != TP_DELTA]
    if with_arrival and stream.column(TP_TIME) is None:
        names.append(TP_TIME)
    return rows.select(*map(spark_name, names))


def _newest(rows: DataFrame, stream: StreamDef) -> DataFrame:
    """The newest row of each primary key, deletes too."""
    order = [F.col(name).desc() for name in (_TIME, SEQUENCE, _PLACE)]
    of_key = Window.partitionBy(*map(spark_name, stream.primary_key)).orderBy(*order)
    return rows.withColumn(_RANK, F.row_number().over(of_key)).where(F.col(_RANK) == 1)
