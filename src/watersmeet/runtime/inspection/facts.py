"""The facts of a query's state as tables: one row for each segment, bucket, part of an input, or counter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.runtime.inspection.described import OperatorText
from watersmeet.runtime.inspection.stored_query import Bucket, StoredQuery

_TIME = pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPERATOR = [("operator", pa.string()), ("kind", pa.string())]
_SIZES = [("rows", pa.int64()), ("bytes", pa.int64())]
_SPAN = [("oldest", _TIME), ("newest", _TIME), ("oldest_t", pa.int64()), ("newest_t", pa.int64())]
_FRONTIER = [("frontier", _TIME), ("frontier_t", pa.int64())]

SEGMENTS = pa.schema(
    [
        *_OPERATOR, ("relation", pa.string()), ("input", pa.string()), ("bucket", pa.int32()), ("segment", pa.string()),
        *_SIZES, *_SPAN, ("chunks", pa.int32()), *_FRONTIER,
    ]
)  # fmt: skip
BUCKETS = pa.schema(
    [*_OPERATOR, ("bucket", pa.int32()), ("segments", pa.int64()), *_SIZES, *_SPAN, *_FRONTIER, ("steps", pa.int64())]
)
INPUTS = pa.schema(
    [
        *_OPERATOR, ("bucket", pa.int32()), ("input", pa.string()), ("part", pa.string()), ("idle", pa.bool_()),
        *_FRONTIER,
    ]
)  # fmt: skip
COUNTERS = pa.schema([*_OPERATOR, ("bucket", pa.int32()), ("counter", pa.string()), ("value", pa.int64())])


def fact_tables(query: StoredQuery) -> dict[str, pa.Table]:
    """All facts that manifests tell, by the name of their relation."""
    made: dict[str, tuple[pa.Schema, Callable[[Bucket], Iterable[tuple[Any, ...]]]]] = {
        "segments": (SEGMENTS, _segments),
        "buckets": (BUCKETS, _buckets),
        "inputs": (INPUTS, _inputs),
        "counters": (COUNTERS, _counters),
    }
    return {name: _table(schema, rows, query.buckets) for name, (schema, rows) in made.items()}


def moment(time: int | None, operator: OperatorText) -> datetime | None:
    """An event time as a time; None if there is none, or if times of the operator are plain numbers."""
    if time is None or operator.counts_rows or time in (NEVER, FOREVER):
        return None
    try:
        return (_EPOCH + timedelta(microseconds=time)).replace(tzinfo=None)
    except OverflowError:
        return None


def _table(
    schema: pa.Schema, rows: Callable[[Bucket], Iterable[tuple[Any, ...]]], buckets: Iterable[Bucket]
) -> pa.Table:
    found = [(bucket.operator.name, bucket.operator.kind, *row) for bucket in buckets for row in rows(bucket)]
    columns = list(zip(*found, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _segments(bucket: Bucket) -> Iterator[tuple[Any, ...]]:
    operator = bucket.operator
    frontier = _frontier(bucket.manifest.frontier, operator)
    for each in bucket.manifest.segments:
        input = operator.input_of(each.relation)
        span = _span(each.low, each.high, operator)
        yield each.relation, input, bucket.number, each.id, each.rows, each.nbytes, *span, each.chunks, *frontier


def _buckets(bucket: Bucket) -> Iterator[tuple[Any, ...]]:
    manifest, operator = bucket.manifest, bucket.operator
    low = min((each.low for each in manifest.segments), default=None)
    high = max((each.high for each in manifest.segments), default=None)
    rows = sum(each.rows for each in manifest.segments)
    frontier = _frontier(manifest.frontier, operator)
    span = _span(low, high, operator)
    yield bucket.number, len(manifest.segments), rows, manifest.nbytes, *span, *frontier, manifest.step


def _inputs(bucket: Bucket) -> Iterator[tuple[Any, ...]]:
    operator = bucket.operator
    for number, parts in bucket.manifest.parts.items():
        alias = operator.inputs[number] if number < len(operator.inputs) else str(number + 1)
        for name, part in parts.items():
            yield bucket.number, alias, name, part.idle, *_frontier(part.frontier, operator)


def _counters(bucket: Bucket) -> Iterator[tuple[Any, ...]]:
    for name, value in bucket.manifest.counters.items():
        yield bucket.number, name, value


def _span(low: int | None, high: int | None, operator: OperatorText) -> tuple[Any, ...]:
    return moment(low, operator), moment(high, operator), low, high


def _frontier(time: int, operator: OperatorText) -> tuple[Any, ...]:
    """A frontier; before any has been reported it is NULL, at the end of all input the largest number."""
    return moment(time, operator), None if time == NEVER else time
