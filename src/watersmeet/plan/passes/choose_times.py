"""Date the rows of a stream by its declared order (``ordered_by``) where windows, ORDER BY or EMIT FINAL are over it.

    r JOIN l ON r.k = l.k AND r.sn > l.sn - 15 AND r.sn < l.sn + 2

With ``sn`` declared in both streams, rows are dated by ``sn`` here, as by an event time without a delay: windows close
by it, and a row that comes after the frontier of its stream has passed it is late.  The rows of an input have one time
in a query.  It is the event time if any condition, WITHIN, join as of a time, ORDER BY or aggregate needs that.

    SELECT sn DIV 100, count(*) FROM l GROUP BY sn DIV 100 EMIT FINAL

Here a group ends with the first ``sn`` of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.event_time import EventTime, TimeUnit
from watersmeet.kernels.api import EmitMode
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.logical.conditions import inputs_of, time_columns
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Interval, time_bounds
from watersmeet.plan.logical.tree import Input, InputColumn, Join, Leaf, Node, joins_of, met_in_time
from watersmeet.plan.passes.expiries import RowSide, expiry_of
from watersmeet.plan.passes.implied_windows import implied_windows
from watersmeet.plan.rising import rising_of


def choose_times(query: LogicalQuery) -> LogicalQuery:
    """The query with the time of each input.

    Raises ``UnsupportedError`` for ORDER BY over a declared order where the query needs the event time, and for a GRACE
    PERIOD where rows are dated by a number.
    """
    found = _chosen(query)
    ordering = found.ordering
    if ordering is not None and not (input := found.inputs[ordering.input]).is_time(ordering.column):
        if ordering.input in {*_dated(query), *_compared(query, query.inputs)}:
            reason = f"other parts of the query need the event time of {input.alias}, {input.time.column}"
            hint = f"order by {input.alias}.{input.time.column}, or write the windows over {ordering.column}"
        else:
            reason = "not all streams of the query have such a time: there are sequence numbers and instants"
            hint = f"write windows over {input.alias}.{ordering.column} and orders of the other streams"
        raise UnsupportedError(
            f"ORDER BY {input.alias}.{ordering.column}: {reason}, and an operator has one kind of time",
            hint=hint,
            position=ordering.position,
        )
    _refuse_grace(found)
    return found


def _join_with_grace(query: LogicalQuery) -> Join | None:
    """The first join with a GRACE PERIOD or ALLOWED LATENESS."""
    return next((join for join in joins_of(query.root) if join.grace.total), None)


def _refuse_grace(query: LogicalQuery) -> None:
    join = _join_with_grace(query)
    counting = (each for each in query.inputs if each.dated_by is not None and each.time.unit is TimeUnit.ROWS)
    if join is not None and (input := next(counting, None)) is not None:
        clause = "GRACE PERIOD" if join.grace.period else "ALLOWED LATENESS"
        raise UnsupportedError(
            f"{clause} is a duration, but {input.alias} is dated by {input.time.column} here, which counts rows",
            hint="leave it out: rows are late once they are out of the declared order",
            position=join.position,
        )


def _chosen(query: LogicalQuery) -> LogicalQuery:
    leads = {input.index: lead for input in query.inputs if (lead := input.stream.lead) is not None}
    chosen = frozenset(leads) - frozenset(_dated(query)) - _compared(query, query.inputs)
    closing = {known.input for known in _closing_columns(query) if query.inputs[known.input].is_time(known.column)}
    if closing and query.ordering is None:  # groups may end by the event time, unless a window is over the order
        chosen -= closing - _compared(query, _dated_by(query, {i: leads[i] for i in chosen}))
    while chosen:
        times = {i: leads[i] for i in chosen}
        kept = chosen & _used(query, times)
        if kept == chosen:
            dated = replace(query, root=_with_times(query.root, times))
            return dated if _are_alike(dated) else query
        chosen = kept
    return query


def _dated(query: LogicalQuery) -> Iterator[int]:
    """The inputs of which a clause takes the event time."""
    for join in joins_of(query.root):
        if join.within is not None:
            yield from met_in_time(join)
        if join.asof is not None and join.asof.direction is not Direction.CURRENT:
            yield from (join.asof.left, join.asof.right)
    if query.ordering is not None and query.inputs[query.ordering.input].is_time(query.ordering.column):
        yield query.ordering.input
    if query.aggregation is not None:
        yield from (call.time for call in query.aggregation.calls if call.time is not None)
    yield from (input.index for input in query.inputs if input.windows)


def _closing_columns(query: LogicalQuery) -> Iterator[InputColumn]:
    """The columns by which groups could end, if they are times, where EMIT FINAL asks for it.

    Different rows (DISTINCT) come as soon as they are there, so they need no end.
    """
    aggregation = query.aggregation
    if aggregation is None or not (query.text.emit is EmitMode.FINAL or query.text.within_final):
        return
    if not aggregation.calls:
        return
    for key in aggregation.keys:
        rising = rising_of(key.expression, query.columns)
        if rising is not None and (known := query.columns.get(rising.name)) is not None:
            yield known


def _used(query: LogicalQuery, times: Mapping[int, EventTime]) -> frozenset[int]:
    """The inputs whose times conditions and ORDER BY use, if some have other times than their event times."""
    inputs = _dated_by(query, times)
    closing = {known.input for known in _closing_columns(query) if inputs[known.input].is_time(known.column)}
    found = _compared(query, inputs) | closing | (_implied(query, inputs) - _implied(query, query.inputs))
    return found if query.ordering is None else found | {query.ordering.input}


def _dated_by(query: LogicalQuery, times: Mapping[int, EventTime]) -> list[Input]:
    return [replace(each, dated_by=times.get(each.index)) for each in query.inputs]


def _compared(query: LogicalQuery, inputs: Sequence[Input]) -> frozenset[int]:
    """The inputs whose times set a window: a bound on the distance of two, or an expiry."""
    times, found = time_columns(inputs, query.columns), set()
    for condition in _conditions(query):
        read = {i for column in condition.find_all(exp.Column) if (time := times(column)) is not None for i in time[:1]}
        if read and (time_bounds(condition, times) is not None or _expires(condition, read, query, inputs)):
            found |= read
    return frozenset(found)


def _implied(query: LogicalQuery, inputs: Sequence[Input]) -> frozenset[int]:
    """The inputs whose times set a window by several conditions of a join together.

    None where durations are asked for, which a declared order may not have.
    """
    settings = query.settings
    if settings.allowed_lateness or isinstance(settings.max_future, float) or _join_with_grace(query) is not None:
        return frozenset()
    windows = (implied_windows(join, query, inputs) for join in joins_of(query.root))
    return frozenset(
        input for found in windows for pair, bounds in found.items() if bounds != Interval() for input in pair
    )


def _expires(condition: exp.Expr, read: Set[int], query: LogicalQuery, inputs: Sequence[Input]) -> bool:
    """Whether a condition says when rows of the other inputs expire, by the time of one that it reads."""
    others = inputs_of(condition, query.columns)
    sides = ((RowSide(others - {i}, frozenset()), inputs[i]) for i in read if others - {i})
    return any(expiry_of(condition, row, partner, query.columns) is not None for row, partner in sides)


def _are_alike(query: LogicalQuery) -> bool:
    """Whether all times are of one kind, so that they can be compared: an operator has one frontier."""
    return len({each.time.unit is TimeUnit.ROWS for each in query.inputs if not each.stream.outside}) == 1


def _conditions(query: LogicalQuery) -> Iterator[exp.Expr]:
    yield from query.filters
    for join in joins_of(query.root):
        yield from (*join.condition.residual, *join.where, *join.tests)
    for above in (query.aggregation, query.over):
        if above is not None:
            yield from above.conditions


def _with_times(node: Node, times: Mapping[int, EventTime]) -> Node:
    if isinstance(node, Leaf):
        lead = times.get(node.input.index)
        return node if lead is None else Leaf(replace(node.input, dated_by=lead))
    return replace(node, left=_with_times(node.left, times), right=_with_times(node.right, times))
