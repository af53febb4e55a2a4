"""The feed of the Spark rig: one folder of small Parquet files, a file for each step.

A file holds everything that a step feeds: rows of all streams of all queries, and control events.  So all of it
arrives in one micro-batch.  The source frame of each stream selects its rows from the feed.
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
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, RAW, SEQUENCE, TP_DELTA, TP_TIME
from watersmeet.connectors.deltas import with_deltas
from watersmeet.connectors.formats.debezium import decode_changes
from watersmeet.connectors.formats.envelope import DEBEZIUM
from watersmeet.connectors.formats.values import decode
from watersmeet.connectors.stream_schema import spark_schema
from watersmeet.engine.control_events import Event
from watersmeet.runtime.source_frames import Source
from watersmeet.testing.cells import Row, Value
from watersmeet.testing.nested_json import json_text

# Names that no stream can declare.
_QUERY, _STREAM, _NUMBER, _ARRIVED = "$query", "$stream", "$number", "$arrived"
_CELLS, _RECORD, _EVENT = "$cells", "$record", "$event"
_SCHEMA = pa.schema(
    [
        (_QUERY, pa.int32()),
        (_STREAM, pa.string()),  # lower-case name; NULL in a control event
        (_NUMBER, pa.int64()),  # of the row in its stream
        (_ARRIVED, pa.int64()),  # rows of its stream before this step: the arrival time, in microseconds
        (_CELLS, pa.list_(pa.string())),
        (_RECORD, pa.string()),  # a record as text, instead of cells
        (_EVENT, pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Portion:
    """What a step feeds to one stream of one query."""

    query: int
    stream: str
    arrived: int
    rows: Sequence[Row] = ()
    raw: Sequence[str] = ()


def write_feed(folder: Path, step: int, portions: Sequence[Portion], events: Mapping[int, Sequence[Event]]) -> bool:
    """Add the file of a step to the feed, atomically; return False if there is nothing to write."""
    lines: list[dict[str, object]] = []
    for portion in portions:
        head = {_QUERY: portion.query, _STREAM: portion.stream, _ARRIVED: portion.arrived}
        content: list[dict[str, object]] = [{_CELLS: [_text(value) for value in row]} for row in portion.rows]
        content += [{_RECORD: record} for record in portion.raw]
        lines += [{**head, _NUMBER: portion.arrived + i, **each} for i, each in enumerate(content)]
    lines += [{_QUERY: query, _EVENT: event.to_json().decode()} for query, found in events.items() for event in found]
    if not lines:
        return False
    hidden = folder / f".{step:06d}"
    pq.write_table(pa.Table.from_pylist(lines, schema=_SCHEMA), hidden)
    hidden.rename(folder / f"{step:06d}.parquet")
    return True


def read_feed(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the feed as one stream."""
    return spark.readStream.schema(from_arrow_schema(_SCHEMA)).parquet(str(folder))


def control_frame(feed: DataFrame, query: int) -> DataFrame:
    """Return the control events of one query, in the form that ``build`` expects."""
    return feed.where((F.col(_QUERY) == query) & F.col(_EVENT).isNotNull()).select(F.col(_EVENT).alias("value"))


def stream_source(feed: DataFrame, query: int, stream: StreamDef, *, has_raw: bool) -> Source:
    """Return one stream of one query; with ``has_raw``, records arrive as text too, in the stream's format."""
    columns = spark_schema(stream)
    rows = feed.where((F.col(_QUERY) == query) & (F.col(_STREAM) == stream.name.lower()))
    hidden = [F.encode(F.lpad(F.hex(_NUMBER), 16, "0"), "UTF-8").alias(SEQUENCE)]
    if stream.column(TP_TIME) is None:
        hidden.append(F.timestamp_micros(_ARRIVED).alias(TP_TIME))
    hides_delta = stream.changes and stream.column(TP_DELTA) is None
    delta = F.get(_CELLS, len(columns)).cast("tinyint")
    if not has_raw:
        hidden += [delta.alias(TP_DELTA)] if hides_delta else []
        return Source(with_deltas(rows.select(*_typed(columns), *hidden), stream))
    decoded = _decoded(rows, stream, columns)
    is_text = F.col(_CELLS).isNull()
    if hides_delta:
        decoded_delta = F.col(TP_DELTA) if TP_DELTA in decoded.columns else F.lit(1)
        hidden.append(F.when(is_text, decoded_delta).otherwise(delta).alias(TP_DELTA))
    typed = [
        F.when(is_text, F.col(f"`{field.name}`")).otherwise(cell).alias(field.name)
        for field, cell in zip(columns, _typed(columns), strict=True)
    ]
    quarantined = [F.when(is_text, F.col(name)).alias(name) for name in (BAD, RAW)]
    return Source(with_deltas(decoded.select(*typed, *hidden, *quarantined), stream))


def _decoded(rows: DataFrame, stream: StreamDef, columns: StructType) -> DataFrame:
    """Decode the records, which are in the stream's format."""
    format = stream.options.get("format", "json")
    if format == DEBEZIUM:
        return decode_changes(rows, _RECORD, stream, columns, stream.options)
    return decode(rows, _RECORD, format, columns, stream.options)


def _typed(columns: StructType) -> list[Column]:
    """Return the cells as values of the declared types."""
    cells = [F.get(_CELLS, i) for i in range(len(columns))]
    return [_value(cell, field.dataType).alias(field.name) for cell, field in zip(cells, columns, strict=True)]


def _value(cell: Column, kind: DataType) -> Column:
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.from_json(cell, kind.simpleString())
    return F.unhex(cell) if isinstance(kind, BinaryType) else cell.cast(kind)


def _text(value: Value) -> str | None:
    """Return a cell as text that Spark can cast to its type."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat(sep=" ")
        case list() | dict():
            return json_text(value, _text)
        case _:
            return str(value)
