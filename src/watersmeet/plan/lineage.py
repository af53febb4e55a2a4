"""A query's result as a stream: its columns, and the one that carries event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.catalog.streams import EMBEDDED, StreamColumn, StreamDef
from watersmeet.expressions.windows import WindowBound
from watersmeet.plan.closing import closings_of
from watersmeet.plan.emission import final_in_time
from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import GroupKey, LogicalQuery
from watersmeet.plan.logical.tree import joins_of, nullable
from watersmeet.plan.passes.slide_joins import is_in_order


def event_time_output(query: LogicalQuery) -> tuple[str, int, int] | None:
    """The first output column that is an input's event time: (name, input, lag behind the last frontier).

    Of an aggregation or of window functions, it is the output that says when a group is final; of several, the latest.
    """
    if query.sessions is not None:
        ends = (each.name for each in query.outputs if each.expression.name == f"${WindowBound.END.value}")
        name = next(ends, None)
        return None if name is None else (name, query.sessions.input, 0)
    if not query.is_plain:
        return _time_of_groups(query)
    for column in query.outputs:
        if not isinstance(column.expression, exp.Column):
            continue
        known = query.columns.get(column.expression.name)
        if known is None or not query.inputs[known.input].is_time(known.column):
            continue
        if known.input in nullable(query.root):
            continue  # a padded row would have no event time
        is_emitted_below = query.ordering is not None and not is_in_order(query)  # the frontier of its operator
        lag = 0 if is_emitted_below else lag_of(query.root, known.input)
        if lag is not None:
            return column.name, known.input, lag
    return None


def _time_of_groups(query: LogicalQuery) -> tuple[str, int, int] | None:
    names = {each.expression.name: each.name for each in query.outputs if isinstance(each.expression, exp.Column)}
    if (time := final_in_time(query)) is not None:
        name = names.get(query.inputs[time.input].physical(time.column))
        return None if name is None else (name, time.input, 0)
    times = [each for each in closings_of(query) if each.is_time]
    found = [(name, each) for each in times if (name := names.get(column_of_key(query, each.key)))]
    if not found:
        return None
    name, last = min(found, key=lambda each: each[1].lag)
    return name, last.input, last.lag


def column_of_key(query: LogicalQuery, key: GroupKey) -> str:
    """The column that holds a key of an aggregation, or of a partition, in the results."""
    return key.name if query.aggregation is not None else str(key.expression.name)


def derived_stream(
    name: str,
    query: LogicalQuery,
    columns: Sequence[tuple[str, str]],
    definition: str,
    options: Mapping[str, str] | None = None,
) -> StreamDef:
    """The stream that CREATE STREAM … AS makes; ``columns`` are (name, Spark type) of the result.

    An embedded stream stores its query's frontier between its rows.  A stream with a connector (``options``) gets a
    delay instead: how far a row may lie behind the newest one.
    """
    time = event_time_output(query)
    given = dict(options or {})
    stream = StreamDef(
        name=name,
        columns=tuple(StreamColumn(name=column, type=kind) for column, kind in columns),
        derived=True,
        definition=definition,
        connector=given.pop("connector", EMBEDDED),
        options=given,
    )
    if time is None:
        return stream
    column, input, lag = time
    delay = 0 if stream.connector == EMBEDDED else lag + _lead(query)
    return stream.model_copy(
        update={
            "time_column": column,
            "time_unit": query.inputs[input].time.unit,
            "has_watermark": True,
            "delay": delay,
        }
    )


def _lead(query: LogicalQuery) -> int:
    """How far ahead of the query's frontier a result may be.

    A row is ahead of its input's frontier by at most the delay; its partner by at most the window more.  An input with
    several parts may run further ahead while one part lags.
    """
    joins = [join.condition for join in joins_of(query.root)]
    windows = [bound for join in joins for bound in (join.bounds.lower, join.bounds.upper) if bound is not None]
    return (
        max(input.time.delay for input in query.inputs)
        + sum(join.grace.total for join in joins)
        + sum(abs(bound) for bound in windows)
    )
