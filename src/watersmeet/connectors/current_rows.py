"""The rows that a stream has now, from a batch source frame: what a query over ``table(name)`` reads."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, SEQUENCE, TP_DELTA, spark_name
from watersmeet.engine.pack import GREATEST_TIME
from watersmeet.runtime.source_columns import internal_time

_TIME, _PLACE, _RANK = "_wm_time", "_wm_place", "_wm_rank"


def current_rows(source: DataFrame, stream: StreamDef, *, named: Collection[str] = ()) -> DataFrame:
    """Return the declared columns of the rows that hold, without ``_tp_delta``, and the hidden ones that are ``named``.

    For an append-only stream these are all rows. For a changing stream they are the newest row of each primary key by
    (event time, position in the source), or none where that is a delete. Rows that a streaming query would quarantine
    are left out.
    """
    rows = source.where(F.col(BAD).isNull()) if BAD in source.columns else source
    if stream.changes:
        # rows that share a position (lines of a file's block, images of one change) keep the order they are read in
        rows = rows.withColumn(_PLACE, F.monotonically_increasing_id())
    rows = rows.withColumn(_TIME, internal_time(stream.event_time))
    rows = rows.where(F.col(_TIME).between(-GREATEST_TIME, GREATEST_TIME))
    if stream.changes:
        rows = _newest(rows, stream).where(F.col(TP_DELTA) == 1)
    names = [column.name for column in stream.columns if column.name != TP_DELTA]
    names += [name for name in stream.hidden if name in named]
    return rows.select(*map(spark_name, names))


def _newest(rows: DataFrame, stream: StreamDef) -> DataFrame:
    """Return the newest row of each primary key, including deletes."""
    order = [F.col(name).desc() for name in (_TIME, SEQUENCE, _PLACE)]
    of_key = Window.partitionBy(*map(spark_name, stream.primary_key)).orderBy(*order)
    return rows.withColumn(_RANK, F.row_number().over(of_key)).where(F.col(_RANK) == 1)
