"""The feed of the Spark bench: one folder of small Parquet files, a file for each step.

A file holds whatever a step brings, of all streams of all queries that share the feed, control events too: so it all
arrives in one micro-batch.  Each stream's source frame is a selection of the feed's rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructType

from watersmeet.catalog import StreamDef
from watersmeet.columns import BAD, PART, RAW, SEQUENCE, TP_TIME
from watersmeet.connectors.formats import decode
from watersmeet.connectors.registry import spark_schema
from watersmeet.engine.events import Event
from watersmeet.runtime.dataflow import Source
from watersmeet.testing.cells import Row, Value

_SCHEMA = pa.schema(
    [
        ("query", pa.int32()),
        ("stream", pa.string()),  # lower-case name; NULL in a control event
        ("number", pa.int64()),  # of the row in its stream
        ("arrived", pa.int64()),  # rows of its stream before this step: the arrival time, in microseconds
        ("cells", pa.list_(pa.string())),
        ("raw", pa.string()),  # a record as text, in place of cells
        ("event", pa.string()),
    ]
)
_DDL = "query INT, stream STRING, number BIGINT, arrived BIGINT, cells ARRAY<STRING>, raw STRING, event STRING"


@dataclass(frozen=True, slots=True)
class Portion:
    """What a step brings for one stream of one query."""

    query: int
    stream: str
    arrived: int
    rows: Sequence[Row] = ()
    raw: Sequence[str] = ()


def write_feed(folder: Path, step: int, portions: Sequence[Portion], events: Mapping[int, Sequence[Event]]) -> bool:
    """Put the file of a step into the feed, whole; False where there is nothing to put."""
    lines: list[dict[str, object]] = []
    for portion in portions:
        head = {"query": portion.query, "stream": portion.stream, "arrived": portion.arrived}
        given = [{"cells": [_text(value) for value in row]} for row in portion.rows]
        given += [{"raw": record} for record in portion.raw]  # type: ignore[dict-item]
        lines += [{**head, "number": portion.arrived + i, **each} for i, each in enumerate(given)]
    for query, each_event in ((query, event) for query, found in events.items() for event in found):
        lines.append({"query": query, "event": each_event.to_json().decode()})
    if not lines:
        return False
    hidden = folder / f".{step:06d}"
    pq.write_table(pa.Table.from_pylist(lines, schema=_SCHEMA), hidden)
    hidden.rename(folder / f"{step:06d}.parquet")
    return True


def read_feed(spark: SparkSession, folder: Path) -> DataFrame:
    """The feed as one stream."""
    return spark.readStream.schema(_DDL).parquet(str(folder))


def control_frame(feed: DataFrame, query: int) -> DataFrame:
    """The control events of one query, as ``build`` takes them."""
    return feed.where((F.col("query") == query) & F.col("event").isNotNull()).select(F.col("event").alias("value"))


def stream_source(feed: DataFrame, query: int, stream: StreamDef, *, has_raw: bool) -> Source:
    """One stream of one query; ``has_raw`` where records come as text too, to be decoded in the stream's format."""
    columns = spark_schema(stream)
    rows = feed.where((F.col("query") == query) & (F.col("stream") == stream.name.lower()))
    hidden = [
        F.lit("").alias(PART),
        F.encode(F.lpad(F.hex("number"), 16, "0"), "UTF-8").alias(SEQUENCE),
    ]
    if stream.column(TP_TIME) is None:
        hidden.append(F.timestamp_micros("arrived").alias(TP_TIME))
    if not has_raw:
        return Source(rows.select(*_typed(columns), *hidden))
    decoded = decode(rows, "raw", stream.options.get("format", "json"), columns, stream.options)
    is_text = F.col("cells").isNull()
    typed = [
        F.when(is_text, F.col(f"`{field.name}`")).otherwise(cell).alias(field.name)
        for field, cell in zip(columns, _typed(columns), strict=True)
    ]
    set_aside = [F.when(is_text, F.col(name)).alias(name) for name in (BAD, RAW)]
    return Source(decoded.select(*typed, *hidden, *set_aside))


def _typed(columns: StructType) -> list[Column]:
    """The cells as values of the declared types."""
    return [
        _cast(F.get("cells", i), isinstance(field.dataType, BinaryType), field.dataType.simpleString()).alias(
            field.name
        )
        for i, field in enumerate(columns)
    ]


def _cast(cell: Column, is_binary: bool, type_name: str) -> Column:
    return F.unhex(cell) if is_binary else cell.cast(type_name)


def _text(value: Value) -> str | None:
    """A cell as text that Spark casts to its type."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat(sep=" ")
        case _:
            return str(value)
