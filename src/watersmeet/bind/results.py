"""The results of a query as an input of another: the stream that describes them, and when they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_names import spark_type
from watersmeet.expressions.windows import WindowBound
from watersmeet.kernels.aggregate.functions import Call
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.closing import closings_of
from watersmeet.plan.emission import decide_emission, emits_changes
from watersmeet.plan.lineage import column_of_key, event_time_output
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.common_types import common_type
from watersmeet.plan.logical.query import AggregateCall, LogicalQuery, OutputColumn
from watersmeet.plan.logical.tree import InputColumn, Results, changing
from watersmeet.plan.passes import optimize

#: The connector of a stream that describes results; no table of the catalogue has it.
RESULTS = "query"
#: The time of results that have no event time: one for all.
NO_TIME = "$no_time"
#: The event time of a query's results: the output, the input whose time it is, and its lag behind the last frontier.
ResultsTime: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class _Described:
    """A query's results: how they change, and their event time (name, unit, lag), if they have one.

    ``ends``: that is a bound of a window.
    """

    weighted: bool
    time: tuple[str, TimeUnit, int] | None
    ends: bool = False


def results_of(
    queries: Sequence[LogicalQuery], name: str, time_of_first: ResultsTime | None = None
) -> tuple[StreamDef, Results]:
    """The results of queries, with the columns of the first; the others have as many, of types that fit.

    Their event time is ``time_of_first``, if it is given, and otherwise found among their columns.

    Raises ``BindError`` for columns whose type is not known, or that do not fit together.
    """
    first = queries[0]
    kinds = [_types(query) for query in queries]
    for query, types in zip(queries[1:], kinds[1:], strict=True):
        if len(types) != len(kinds[0]):
            raise BindError(
                f"UNION combines {len(kinds[0])} columns with {len(types)}",
                hint="select as many columns on each side",
                position=query.text.position,
            )
    columns = []
    for place, column in enumerate(first.outputs):
        kind = common_type(types[place] for types in kinds) if len(kinds) > 1 else kinds[0][place]
        if kind is None:
            names = ", ".join(types[place].sql(dialect="spark") for types in kinds)
            raise BindError(
                f"UNION combines columns of different types for {column.name}: {names}",
                hint="CAST them to one type",
                position=position_of(queries[1].outputs[place].expression) or queries[1].text.position,
            )
        columns.append(StreamColumn(name=column.name, type=kind.sql(dialect="spark")))
    described = [_describe(query, time_of_first) for query in queries]
    time, lags = _time(queries, described)
    stream = StreamDef(
        name=name,
        columns=tuple(columns),
        connector=RESULTS,
        time_column=time[0] if time is not None else NO_TIME,
        time_unit=time[1] if time is not None else TimeUnit.TIMESTAMP,
        has_watermark=True,
    )
    weighted, ends = any(each.weighted for each in described), all(each.ends for each in described)
    distances = _distances(queries[0], time[0]) if time is not None and len(queries) == 1 else {}
    return stream, Results(tuple(queries), weighted, lags, ends, distances)


def _distances(query: LogicalQuery, time: str) -> dict[str, int]:
    """The outputs that are other bounds of the window of which the output ``time`` is one: how long after it."""
    optimized = optimize(query)
    names = {each.expression.name: each.name for each in query.outputs if isinstance(each.expression, exp.Column)}
    bounds: dict[str, tuple[int, object, int]] = {}  # by output: input, window, how far before the end
    for closing in closings_of(optimized):
        if closing.rising is not None:
            continue
        input = query.inputs[closing.input]
        window = input.window_of(closing.column.column)
        column = column_of_key(optimized, closing.key)
        if column in names and (window is None or not window[0].grows):
            bounds[names[column]] = (input.index, window and window[0], closing.before_end)
    if time not in bounds:
        return {}
    *same, before_end = bounds[time]
    return {name: before_end - end for name, (*of, end) in bounds.items() if name != time and of == same}


def _describe(query: LogicalQuery, given: ResultsTime | None) -> _Described:
    optimized = optimize(query)
    weighted = emits_changes(optimized, decide_emission(optimized).mode)
    time = given or event_time_output(optimized)
    # a retraction has the time of what it retracts, however old: it must not be late
    if time is None or any(input.stream.changes for input in changing(optimized.root)):
        return _Described(weighted, None)
    name, number, lag = time
    input = optimized.inputs[number]
    return _Described(
        weighted,
        (name, input.time.unit, lag),
        ends=bool(input.windows) or input.is_windowed or query.sessions is not None,
    )


def _time(
    queries: Sequence[LogicalQuery], described: Sequence[_Described]
) -> tuple[tuple[str, TimeUnit] | None, tuple[int, ...] | None]:
    """The event time that all results share, by its place in the SELECT list, and its lags."""
    times = [each.time for each in described if each.time is not None]
    if len(times) < len(described):
        return None, None
    places = {_place(query, time[0]) for query, time in zip(queries, times, strict=True)}
    units = {time[1] for time in times}
    if len(places) > 1 or len(units) > 1:
        return None, None
    return (queries[0].outputs[places.pop()].name, units.pop()), tuple(time[2] for time in times)


def _place(query: LogicalQuery, name: str) -> int:
    return next(place for place, column in enumerate(query.outputs) if column.name == name)


def _types(query: LogicalQuery) -> list[exp.DataType]:
    columns = {**query.columns, **columns_above(query)}
    return [_type(column, columns, query) for column in query.outputs]


def columns_above(query: LogicalQuery) -> dict[str, InputColumn]:
    """The columns that an aggregation, window functions or sessions add, with their types; they belong to no input."""
    found: Mapping[str, exp.DataType] = {}
    if query.aggregation is not None:
        found = {key.name: key.type for key in query.aggregation.keys}
        found |= {call.name: result_type(call) for call in query.aggregation.calls}
    elif query.sessions is not None:
        kind = query.inputs[query.sessions.input].time_type
        found = {f"${bound.value}": kind for bound in WindowBound}
    elif query.over is not None:
        found = {call.name: call.type for call in query.over.calls}
    return {name: InputColumn(name, -1, name, kind) for name, kind in found.items()}


def result_type(call: AggregateCall) -> exp.DataType:
    """The type of the value of an aggregate function."""
    if call.function.keeps_type:
        return call.type
    value = Call(call.name, call.function, None, arrow_type(call.type), given=call.given, many=call.many)
    return exp.DataType.build(spark_type(value.result_type), dialect="spark")


def _type(column: OutputColumn, columns: Mapping[str, InputColumn], query: LogicalQuery) -> exp.DataType:
    for each in column.expression.find_all(exp.Column):
        if each.name == TP_DELTA:
            raise UnsupportedError(
                f"a subquery cannot select {TP_DELTA}: its changes are those of its rows",
                hint="leave it out; the outermost query has its own",
                position=position_of(each) or query.text.position,
            )
    kind = certain_type(column.expression, columns)
    if kind is None:
        raise BindError(
            f"the type of {column.name} is not known here: {plain_sql(column.expression)}",
            hint="CAST it to a type",
            position=position_of(column.expression) or query.text.position,
        )
    return kind


def inner_emit(outer: EmitMode | None) -> EmitMode | None:
    """What a query in a subquery is asked to emit: results at once if the outermost one is, else what it can."""
    return EmitMode.CHANGELOG if outer is EmitMode.CHANGELOG else None
