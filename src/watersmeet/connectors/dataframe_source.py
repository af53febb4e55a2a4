"""Registered streaming DataFrames as sources."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, StructType, TimestampType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import SEQUENCE, STORED_FRONTIER, TP_TIME
from watersmeet.connectors.deltas import with_deltas
from watersmeet.errors import ConfigError, did_you_mean
from watersmeet.runtime.source_frames import Source


def frame_source(frame: DataFrame, stream: StreamDef, order: str | None = None) -> Source:
    """Return a streaming DataFrame as a source.

    Rows are ordered by the column ``order``, then by a hash of the row; without ``order`` by the hash alone.
    """
    hashed = F.lpad(F.hex(F.xxhash64(*(F.col(f"`{name}`") for name in frame.columns))), 16, "0")
    place = hashed if order is None else F.concat(_rank(F.col(f"`{order}`"), frame.schema[order].dataType), hashed)
    hidden = {SEQUENCE: F.encode(place, "UTF-8")}
    if TP_TIME not in frame.columns:
        hidden[TP_TIME] = F.current_timestamp()
    frame = frame.withColumns(hidden)
    return Source(with_deltas(frame, stream), stores_frontier=STORED_FRONTIER in frame.columns)


def check_order(name: str, order: str, schema: StructType) -> None:
    """Raise ``ConfigError`` for a column that cannot order the rows of a frame."""
    if order not in schema.fieldNames():
        raise ConfigError(
            f"{name} has no column {order}", hint=did_you_mean(order, schema.fieldNames()), option="order"
        )
    if not isinstance(schema[order].dataType, IntegralType | TimestampType):
        raise ConfigError(
            f"{order} is {schema[order].dataType.simpleString()}: rows are ordered by a whole number or a timestamp",
            option="order",
        )


def _rank(column: Column, kind: DataType) -> Column:
    """Return a number as text that sorts like it: hexadecimal with the sign bit flipped; NULL first."""
    number = F.unix_micros(column) if isinstance(kind, TimestampType) else column.cast("bigint")
    return F.coalesce(F.lpad(F.hex(number.bitwiseXOR(F.lit(-(2**63)).cast("bigint"))), 16, "0"), F.lit("0" * 16))
