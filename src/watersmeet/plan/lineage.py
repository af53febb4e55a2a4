"""What a query's result is as a stream: its columns, and which of them carries event time."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.catalog import StreamColumn, StreamDef
from watersmeet.plan.logical import LogicalQuery, nullable
from watersmeet.plan.windows import lag_of


def event_time_output(query: LogicalQuery) -> tuple[str, int, int] | None:
    """The first output column that is an input's event time: (name, input, lag behind the last frontier)."""
    for column in query.outputs:
        if not isinstance(column.expression, exp.Column):
            continue
        known = query.columns.get(column.expression.name)
        if known is None or known.column.lower() != query.inputs[known.input].time.column.lower():
            continue
        if known.input in nullable(query.root):
            continue  # a padded row would have no event time
        lag = 0 if query.ordering is not None else lag_of(query.root, known.input)
        if lag is not None:
            return column.name, known.input, lag
    return None


def derived_stream(name: str, query: LogicalQuery, columns: Sequence[tuple[str, str]], definition: str) -> StreamDef:
    """The stream that CREATE STREAM … AS makes; ``columns`` are (name, Spark type) of the result."""
    time = event_time_output(query)
    described = tuple(StreamColumn(name=column, type=kind) for column, kind in columns)
    if time is None:
        return StreamDef(name=name, columns=described, derived=True, definition=definition)
    column, input, _ = time
    return StreamDef(
        name=name,
        columns=described,
        time_column=column,
        time_unit=query.inputs[input].time.unit,
        has_watermark=True,
        derived=True,
        definition=definition,
    )
