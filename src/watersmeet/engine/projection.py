"""What packing needs of a source's rows, computed in the worker: dataflow.py has the same as Spark expressions.

Columns stay as they are read, hashes are Spark's own, and conditions and computed columns are those of which it is
known that Spark and DuckDB agree (plan/worker_projection.py decides).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import SEQUENCE, STORED_FRONTIER, TIME, TP_DELTA
from watersmeet.engine.hashing import xxhash64
from watersmeet.engine.pack import GREATEST_TIME, RAW_TEXT
from watersmeet.kernels.api import quote


@dataclass(frozen=True, slots=True)
class Changes:
    """Of a stream that changes: its primary key, and whether it declares ``_tp_delta`` (else every row holds)."""

    primary_key: tuple[str, ...]
    declares_delta: bool = False


@dataclass(frozen=True, slots=True)
class Projection:
    """How a source's rows, with columns as declared, become rows to pack.

    ``time`` is the event-time column and ``scale`` what one of its units is on the axis.  ``taken`` are declared
    columns under the names that travel, with their type there; ``hashes`` the columns that each hash is made of,
    likewise.  ``computed`` and ``keep`` are DuckDB SQL over declared columns.  ``record`` names the stream's columns,
    for the text of rows that are set aside; of them only those that are read for other reasons stand in ``reads``.
    """

    time: str
    scale: int
    taken: tuple[tuple[str, str, pa.DataType], ...]
    hashes: tuple[tuple[str, tuple[tuple[str, pa.DataType], ...]], ...]
    reads: tuple[str, ...]
    record: tuple[str, ...]
    computed: tuple[tuple[str, str, pa.DataType], ...] = ()
    keep: str | None = None
    sequence: str | None = None
    changes: Changes | None = None


def project(rows: pa.Table, spec: Projection) -> pa.Table | None:
    """The rows with the columns that ``pack`` asks for.

    None where some have to be set aside, and ``rows`` lacks columns for their text.
    """
    bad = None
    if spec.changes is not None:
        rows, bad = _changes(rows, spec.changes)
    columns: dict[str, pa.ChunkedArray] = {TIME: _on_axis(rows[spec.time], spec.scale)}
    for name, declared, kind in spec.taken:
        columns[name] = _as(rows[declared], kind)
    if spec.sequence is not None:
        columns[spec.sequence] = rows[SEQUENCE]
    columns |= _computed(rows, spec)
    for name, keys in spec.hashes:
        columns[name] = pa.chunked_array([xxhash64([_as(rows[key], kind) for key, kind in keys])])
    unusable = _unusable(rows, columns[TIME], bad)
    if pc.any(unusable).as_py() and not set(spec.record) <= set(rows.column_names):
        return None
    columns[RAW_TEXT] = _texts(rows, unusable, spec.record)
    if bad is not None:
        columns["$bad"] = bad
    if STORED_FRONTIER in rows.column_names:
        columns["$frontier"] = rows[STORED_FRONTIER]
    return pa.table(columns)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _on_axis(times: pa.ChunkedArray, scale: int) -> pa.ChunkedArray:
    """Event times as operators count them; NULL where they do not fit."""
    axis = times.cast(pa.int64())
    if scale == 1:
        return axis
    fits = pc.and_(pc.less_equal(axis, 2**63 // scale - 1), pc.greater_equal(axis, -(2**63 // scale - 1)))
    return pc.multiply(pc.if_else(fits, axis, pa.scalar(None, pa.int64())), scale)


def _computed(rows: pa.Table, spec: Projection) -> dict[str, pa.ChunkedArray]:
    """Computed columns and the filter, by DuckDB."""
    items = [f"CAST({sql} AS {_DUCKDB[kind]}) AS {quote(name)}" for name, sql, kind in spec.computed]
    if spec.keep is not None:
        items.append(f'{spec.keep} AS "$keep"')
    if not items:
        return {}
    connection = _connection()
    connection.register("given", rows)
    try:
        found = connection.sql(f"SELECT {', '.join(items)} FROM given").to_arrow_table()
    finally:
        connection.unregister("given")
    return dict(zip(found.column_names, found.columns, strict=True))


#: Types that computed columns may have.
_DUCKDB = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
}
COMPUTED_TYPES = tuple(_DUCKDB)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


# -- rows that change, and rows that are set aside ---------------------------------------------------------------------


def _changes(rows: pa.Table, changes: Changes) -> tuple[pa.Table, pa.ChunkedArray]:
    """The rows with ``_tp_delta``, and why one cannot be a change (connectors/changes.py has the same for Spark)."""
    nothing = pa.scalar(None, pa.string())
    reasons = [
        pc.if_else(rows[name].is_null(), f"primary key column {name} is NULL", nothing) for name in changes.primary_key
    ]
    if not changes.declares_delta:
        delta = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int8()), rows.num_rows)])
    else:
        given = rows[TP_DELTA].cast(pa.int64())
        is_delta = pc.fill_null(pc.equal(pc.abs_checked(given), 1), False)
        shown = pc.fill_null(given.cast(pa.string()), "NULL")
        told = pc.binary_join_element_wise(f"{TP_DELTA} is ", shown, ": a change is +1 or -1", "")
        reasons.append(pc.if_else(is_delta, nothing, told))
        delta = pc.if_else(is_delta, given, pa.scalar(None, pa.int64())).cast(pa.int8())
        rows = rows.drop_columns([TP_DELTA])
    bad = pc.coalesce(*reasons)
    delta = pc.if_else(bad.is_null(), delta, pa.scalar(None, pa.int8()))
    return rows.append_column(TP_DELTA, delta), bad


def _unusable(rows: pa.Table, times: pa.ChunkedArray, bad: pa.ChunkedArray | None) -> pa.ChunkedArray:
    """Which rows have to be set aside."""
    unusable = pc.fill_null(pc.or_(pc.greater(times, GREATEST_TIME), pc.less(times, -GREATEST_TIME)), True)
    if bad is not None:
        unusable = pc.or_(unusable, bad.is_valid())
    if STORED_FRONTIER in rows.column_names:
        unusable = pc.and_(unusable, rows[STORED_FRONTIER].is_null())
    return unusable


def _texts(rows: pa.Table, unusable: pa.ChunkedArray, record: tuple[str, ...]) -> pa.ChunkedArray:
    """The text of the rows that have to be set aside, NULL for all others."""
    texts = pa.nulls(rows.num_rows, pa.string())
    if pc.any(unusable).as_py():
        records = rows.select(list(record)).filter(unusable).to_pylist()
        values = pa.array([_json(each) for each in records], pa.string())
        texts = pc.replace_with_mask(texts, unusable.combine_chunks(), values)
    return pa.chunked_array([texts])


def _json(record: Mapping[str, Any]) -> str:
    """A row as JSON, in the form of Spark's ``to_json``: without NULLs, times in UTC.

    Unlike there a decimal is text, so that no digit is lost.
    """
    present = {name: value for name, value in record.items() if value is not None}
    return json.dumps(present, default=_plain, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else str(value)
