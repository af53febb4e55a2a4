"""``_tp_delta`` in the source frames of changing streams: +1 for a row that holds, -1 for a retraction.

Where the source has no delta it is +1. Rows with a NULL in the key or with another delta are bad rows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, StructField

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, RAW, TEXT, TP_DELTA, spark_name

DELTA_FIELD = StructField(TP_DELTA, ByteType())


def with_deltas(frame: DataFrame, stream: StreamDef) -> DataFrame:
    """Return a source frame with ``_tp_delta`` (TINYINT), and with ``_bad`` and ``_raw`` for rows that are no changes.

    The frame of an append-only stream is returned unchanged.
    """
    if not stream.changes:
        return frame
    delta = given_delta(frame, stream)
    nothing = F.lit(None).cast("string")
    known = [F.col(BAD), F.col(RAW)] if BAD in frame.columns else [nothing, nothing]
    # a row that is already bad has no values to check
    reason = F.coalesce(known[0], change_reason(stream, delta))
    if TEXT in frame.columns:
        record = F.col(TEXT)
    else:
        record = F.to_json(F.struct(*(F.col(spark_name(column.name)) for column in stream.columns)))
    return frame.withColumns(
        {
            TP_DELTA: F.when(reason.isNull(), delta.try_cast("tinyint")),
            BAD: reason,
            RAW: F.coalesce(known[1], F.when(reason.isNotNull(), record)),
        }
    )


def given_delta(frame: DataFrame, stream: StreamDef) -> Column:
    """Return the delta of a source frame's rows, unchecked; +1 where the source has none."""
    delta = F.col(TP_DELTA) if TP_DELTA in frame.columns else F.lit(1)
    return F.coalesce(delta, F.lit(1)) if stream.column(TP_DELTA) is None else delta


def change_reason(stream: StreamDef, delta: Column) -> Column:
    """Return why a row with these values is not a change; NULL where it is one."""
    wrong: list[Column] = [
        F.when(F.col(spark_name(name)).isNull(), f"primary key column {name} is NULL") for name in stream.primary_key
    ]
    shown = F.coalesce(delta.cast("string"), F.lit("NULL"))
    is_delta = F.coalesce(delta.isin(1, -1), F.lit(False))
    wrong.append(F.when(~is_delta, F.concat(F.lit(f"{TP_DELTA} is "), shown, F.lit(": a change is +1 or -1"))))
    return F.coalesce(*wrong)
