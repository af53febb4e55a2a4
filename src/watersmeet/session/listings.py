"""SHOW STREAMS, SHOW TABLES, SHOW QUERIES and DESCRIBE as rows to print."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA, TP_TIME
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Table


def stream_list(streams: Iterable[StreamDef]) -> Table:
    """SHOW STREAMS."""
    rows: list[tuple[str, ...]] = [
        (stream.name, stream.connector, stream.time_column, "query" if stream.derived else "") for stream in streams
    ]
    return Table(("stream", "connector", "event time", "fed by"), rows)


def table_list(tables: Iterable[StreamDef]) -> Table:
    """SHOW TABLES."""
    return Table(("table", "connector"), [(table.name, table.connector) for table in tables])


def query_list(queries: Iterable[RunningQuery]) -> Table:
    """SHOW QUERIES: what each has done so far; the lag is that of the operator furthest behind its newest row."""
    return Table(
        ("query", "state", "batches", "rows in", "rows out", "state rows", "state bytes", "lag", "checkpoint"),
        [_query_row(query) for query in queries],
    )


def _query_row(query: RunningQuery) -> tuple[str, ...]:
    report = query.report()
    counts = report.batches, sum(report.rows_in.values()), report.rows_out, report.state_rows, report.state_bytes
    furthest = max(report.operators.values(), key=lambda each: each.lag or 0, default=None)
    return (
        query.name,
        (report.waiting or "running") if query.is_active else "ended",
        *map(str, counts),
        "" if furthest is None else furthest.lag_text,
        query.checkpoint,
    )


def description(stream: StreamDef) -> Table:
    """DESCRIBE."""
    rows: list[tuple[str, ...]] = []
    for column in stream.columns:
        notes = ["primary key"] if column.name in stream.primary_key else []
        if column.name == stream.time_column:
            notes.append(f"event time ({stream.time_unit.value}), delay {_delay_text(stream)}")
        if stream.ordered_by and column.name == stream.ordered_by[0].expression:
            notes.append(f"rows arrive in the order {stream.order_text}")
        notes += [f"index {index.name}" for index in stream.indexes if column.name in index.columns]
        if column.name == TP_DELTA:
            notes.append(_mode_text(stream))
        rows.append((column.name, column.type, "; ".join(notes)))
    if stream.time_column == TP_TIME and not stream.outside:
        rows.append((TP_TIME, "TIMESTAMP", "event time: arrival"))
    if stream.changes and stream.column(TP_DELTA) is None:
        rows.append((TP_DELTA, "TINYINT", _mode_text(stream)))
    return Table(("column", "type", "note"), rows)


def _mode_text(stream: StreamDef) -> str:
    return f"+1: the row holds, -1: it does not any more; mode {stream.mode.value}"


def _delay_text(stream: StreamDef) -> str:
    if stream.time_unit is TimeUnit.ROWS:
        return f"{stream.delay} rows"
    return f"{stream.delay / 1_000_000:g} seconds"
