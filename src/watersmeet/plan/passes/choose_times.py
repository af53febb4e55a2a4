"""Date the rows of a stream by its declared order (``ordered_by``) where the query's windows or ORDER BY are over it.

    r JOIN l ON r.k = l.k AND r.sn > l.sn - 15 AND r.sn < l.sn + 2

With ``sn`` declared in both streams, rows are dated by ``sn`` here, as by an event time without a delay: windows close
by it, and a row that comes after the frontier of its stream has passed it is late.  The rows of an input have one time
in a query.  It is the event time if any condition, WITHIN, join as of a time, ORDER BY or aggregate needs that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.event_time import EventTime, TimeUnit
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Input, Leaf, Node, joins_of, met_in_time

_COMPARISONS = (exp.EQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def choose_times(query: LogicalQuery) -> LogicalQuery:
    """The query with the time of each input.

    Raises ``UnsupportedError`` for ORDER BY over a declared order where the query needs the event time.
    """
    found = _chosen(query)
    ordering = found.ordering
    if ordering is not None and not (input := found.inputs[ordering.input]).is_time(ordering.column):
        raise UnsupportedError(
            f"ORDER BY {input.alias}.{ordering.column}: other parts of the query need the event time of {input.alias}, "
            f"{input.time.column}, and its rows can be in one order alone",
            hint=f"order by {input.alias}.{input.time.column}, or write the windows over {ordering.column}",
            position=ordering.position,
        )
    return found


def _chosen(query: LogicalQuery) -> LogicalQuery:
    leads = {input.index: lead for input in query.inputs if (lead := input.stream.lead) is not None}
    chosen = frozenset(leads) - frozenset(_dated(query)) - _compared(query, query.inputs)
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
        if join.asof is not None:
            yield from (join.asof.left, join.asof.right)
    if query.ordering is not None and query.inputs[query.ordering.input].is_time(query.ordering.column):
        yield query.ordering.input
    if query.aggregation is not None:
        yield from (call.time for call in query.aggregation.calls if call.time is not None)


def _used(query: LogicalQuery, times: Mapping[int, EventTime]) -> frozenset[int]:
    """The inputs whose times conditions and ORDER BY use, if some have other times than their event times."""
    found = _compared(query, [replace(each, dated_by=times.get(each.index)) for each in query.inputs])
    return found if query.ordering is None else found | {query.ordering.input}


def _compared(query: LogicalQuery, inputs: Sequence[Input]) -> frozenset[int]:
    """The inputs whose times a condition compares with columns of another."""
    found = set()
    for condition in _conditions(query):
        if isinstance(condition, _COMPARISONS) and len(inputs_of(condition, query.columns)) > 1:
            names = (column.name for column in condition.find_all(exp.Column))
            read = [query.columns[name] for name in names if name in query.columns]
            found |= {each.input for each in read if inputs[each.input].is_time(each.column)}
    return frozenset(found)


def _are_alike(query: LogicalQuery) -> bool:
    """Whether all times are of one kind, so that they can be compared: an operator has one frontier."""
    return len({each.time.unit is TimeUnit.ROWS for each in query.inputs if not each.stream.outside}) == 1


def _conditions(query: LogicalQuery) -> Iterator[exp.Expr]:
    yield from query.filters
    for join in joins_of(query.root):
        yield from (*join.condition.residual, *join.where, *join.tests)
    if query.aggregation is not None:
        yield from query.aggregation.conditions


def _with_times(node: Node, times: Mapping[int, EventTime]) -> Node:
    if isinstance(node, Leaf):
        lead = times.get(node.input.index)
        return node if lead is None else Leaf(replace(node.input, dated_by=lead))
    return replace(node, left=_with_times(node.left, times), right=_with_times(node.right, times))
