"""Projection: the columns that packing needs, computed in the worker from a source's rows.

runtime/source_columns.py computes the same with Spark expressions.  Hashes are Spark's own, and only conditions and
computed columns for which Spark and DuckDB are known to agree are computed here (plan/worker_projection.py decides).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import SEQUENCE, STORED_FRONTIER, TIME, TP_DELTA, TP_TIME
from watersmeet.engine.explodes import ExplodedColumns, with_elements
from watersmeet.engine.hashing import xxhash64
from watersmeet.engine.pack import ARRIVAL, RAW_TEXT, has_no_time
from watersmeet.engine.scratch import scratch_connection
from watersmeet.engine.windows import WindowColumns, with_windows
from watersmeet.kernels.api import quote


@dataclass(frozen=True, slots=True)
class Changes:
    """A changing stream's primary key, and whether it declares ``_tp_delta`` (otherwise every row is a +1)."""

    primary_key: tuple[str, ...]
    declares_delta: bool = False


@dataclass(frozen=True, slots=True)
class Projection:
    """How a source's rows, with the declared columns, become rows to pack.

    - ``time``: the event-time column; ``scale``: the units of ``$t`` in one of its units.
    - ``taken``: (name in the frames, declared column, type in the frames).
    - ``hashes``: (name of the hash, its declared or computed columns with the types to hash them as).
    - ``reads``: the columns to read from a file.
    - ``record``: all columns of the stream, for the text of quarantined rows.  ``reads`` need not hold all of them.
    - ``computed`` and ``keep``: DuckDB SQL over declared columns.
    - ``max_future``: the most that an event time may be after the row's arrival, which ``reads`` then has.
    - ``windows``: those of the rows, whose bounds are columns like the declared ones.
    - ``explodes``: arrays of the rows, each of whose elements is a row, with columns like the declared ones.
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
    max_future: int | None = None
    windows: tuple[WindowColumns, ...] = ()
    explodes: tuple[ExplodedColumns, ...] = ()


def project(rows: pa.Table, spec: Projection) -> pa.Table | None:
    """Return the rows with the columns that ``pack`` expects.

    Returns None if some rows are bad and ``rows`` lacks columns for their text: then the caller reads all columns.
    """
    bad = None
    if spec.changes is not None:
        rows, bad = _changes(rows, spec.changes)
    if spec.windows:
        over = spec.windows[0]
        rows = with_windows(rows, _internal_times(rows[over.time], over.scale), spec.windows)
    is_bad = _is_bad(rows, spec, _internal_times(rows[spec.time], spec.scale), bad)
    if pc.any(is_bad).as_py() and not set(spec.record) <= set(rows.column_names):
        return None
    texts = _texts(rows, is_bad, spec.record)
    if spec.explodes:
        rows = with_elements(rows.append_column(RAW_TEXT, texts), spec.explodes, is_bad)
        texts = rows[RAW_TEXT]
    columns: dict[str, pa.ChunkedArray] = {TIME: _internal_times(rows[spec.time], spec.scale)}
    for name, declared, kind in spec.taken:
        columns[name] = _as(rows[declared], kind)
    if spec.sequence is not None:
        columns[spec.sequence] = rows[SEQUENCE]
    made = _computed(rows, spec)
    columns |= made
    for name, keys in spec.hashes:
        parts = [_as(made[key] if key in made else rows[key], kind) for key, kind in keys]
        columns[name] = pa.chunked_array([xxhash64(parts)])
    if spec.max_future is not None:
        columns[ARRIVAL] = _arrivals(rows)
    columns[RAW_TEXT] = texts
    if bad is not None:
        columns["$bad"] = bad
    if STORED_FRONTIER in rows.column_names:
        columns["$frontier"] = rows[STORED_FRONTIER]
    return pa.table(columns)


def unusable(rows: pa.Table, spec: Projection) -> pa.ChunkedArray:
    """Return a mask of the rows that ``project`` would mark to be quarantined."""
    bad = _changes(rows, spec.changes)[1] if spec.changes is not None else None
    return _is_bad(rows, spec, _internal_times(rows[spec.time], spec.scale), bad)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _internal_times(times: pa.ChunkedArray, scale: int) -> pa.ChunkedArray:
    """Return event times in units of ``$t``; NULL for those that do not fit in 64 bits."""
    units = times.cast(pa.int64())
    if scale == 1:
        return units
    most, ends = 2**63 // scale - 1, pc.min_max(units)
    if ends["min"].is_valid and not -most <= ends["min"].as_py() <= ends["max"].as_py() <= most:
        fits = pc.and_(pc.less_equal(units, most), pc.greater_equal(units, -most))
        units = pc.if_else(fits, units, pa.scalar(None, pa.int64()))
    return pc.multiply(units, scale)


def _computed(rows: pa.Table, spec: Projection) -> dict[str, pa.ChunkedArray]:
    """Return computed columns and the filter, evaluated by DuckDB."""
    keep = [] if spec.keep is None else [("$keep", spec.keep, pa.bool_())]
    return evaluated(rows, [*spec.computed, *keep])


def evaluated(rows: pa.Table, columns: Sequence[tuple[str, str, pa.DataType]]) -> dict[str, pa.ChunkedArray]:
    """Return columns over rows by their names; each is (name, DuckDB SQL, one of ``COMPUTED_TYPES``)."""
    items = [f"CAST({sql} AS {_DUCKDB[kind]}) AS {quote(name)}" for name, sql, kind in columns]
    if not items:
        return {}
    connection = scratch_connection()
    connection.register("source_rows", rows)
    try:
        found = connection.sql(f"SELECT {', '.join(items)} FROM source_rows").to_arrow_table()
    finally:
        connection.unregister("source_rows")
    return dict(zip(found.column_names, found.columns, strict=True))


#: Types that computed columns may have.
_DUCKDB = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
}
COMPUTED_TYPES = tuple(_DUCKDB)


# -- changes, and bad rows ---------------------------------------------------------------------------------------------


def _changes(rows: pa.Table, changes: Changes) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the rows with ``_tp_delta``, and why a row is not a change (for Spark see connectors/changes.py)."""
    nothing = pa.scalar(None, pa.string())
    reasons = [
        pc.if_else(rows[name].is_null(), f"primary key column {name} is NULL", nothing) for name in changes.primary_key
    ]
    if not changes.declares_delta:
        delta = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int8()), rows.num_rows)])
    else:
        declared = rows[TP_DELTA].cast(pa.int64())
        is_delta = pc.fill_null(pc.equal(pc.abs_checked(declared), 1), False)
        text = pc.fill_null(declared.cast(pa.string()), "NULL")
        reason = pc.binary_join_element_wise(f"{TP_DELTA} is ", text, ": a change is +1 or -1", "")
        reasons.append(pc.if_else(is_delta, nothing, reason))
        delta = pc.if_else(is_delta, declared, pa.scalar(None, pa.int64())).cast(pa.int8())
        rows = rows.drop_columns([TP_DELTA])
    bad = pc.coalesce(*reasons)
    delta = pc.if_else(bad.is_null(), delta, pa.scalar(None, pa.int8()))
    return rows.append_column(TP_DELTA, delta), bad


def _arrivals(rows: pa.Table) -> pa.ChunkedArray:
    return rows[TP_TIME].cast(pa.int64())


def _is_bad(rows: pa.Table, spec: Projection, times: pa.ChunkedArray, bad: pa.ChunkedArray | None) -> pa.ChunkedArray:
    """Return a mask of the rows to quarantine."""
    arrivals = _arrivals(rows) if spec.max_future is not None else None
    is_bad = has_no_time(times, arrivals, spec.max_future)
    if bad is not None:
        is_bad = pc.or_(is_bad, bad.is_valid())
    if STORED_FRONTIER in rows.column_names:
        is_bad = pc.and_(is_bad, rows[STORED_FRONTIER].is_null())
    return is_bad


def _texts(rows: pa.Table, is_bad: pa.ChunkedArray, record: tuple[str, ...]) -> pa.ChunkedArray:
    """Return the text of the rows to quarantine, NULL for all others."""
    texts = pa.nulls(rows.num_rows, pa.string())
    if pc.any(is_bad).as_py():
        records = rows.select(list(record)).filter(is_bad).to_pylist()
        values = pa.array([_json(each) for each in records], pa.string())
        texts = pc.replace_with_mask(texts, is_bad.combine_chunks(), values)
    return pa.chunked_array([texts])


def _json(record: Mapping[str, Any]) -> str:
    """Encode a row as JSON in the form of Spark's ``to_json``: without NULLs, times in UTC.

    Unlike in Spark, a decimal is text, so that no digit is lost.
    """
    present = {name: value for name, value in record.items() if value is not None}
    return json.dumps(present, default=_plain, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else str(value)
