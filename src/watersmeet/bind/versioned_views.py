"""Versioned views: queries that keep the newest row of each key, so that all rows below them are its versions.

    SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM s) WHERE n = 1 AND v > 0
    SELECT k, last_value(v) FROM s GROUP BY k HAVING last_value(v) > 0

At each time both have, of each ``k``, the newest row of ``s`` so far, if it meets the condition.  So the row that is
valid at a time is picked first, and tested then.  A condition on ``s`` itself leaves out rows before one is picked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.bind.over import finished
from watersmeet.bind.rewriting import column_of
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.plan.closing import closing_of
from watersmeet.plan.logical.query import AggregateCall, LogicalQuery, OutputColumn
from watersmeet.plan.logical.tree import Leaf, nullable
from watersmeet.plan.passes import optimize


@dataclass(frozen=True, slots=True)
class VersionedView:
    """The newest row of each ``key`` among those of a plain query, ``rows``, by the event time ``time``.

    All are expressions over the columns of ``rows``; the picked row is one of the view if it meets the ``tests``.
    """

    rows: LogicalQuery
    key: tuple[exp.Expr, ...]
    time: exp.Column
    outputs: tuple[OutputColumn, ...]
    tests: tuple[exp.Expr, ...]


def versioned_view(query: LogicalQuery) -> VersionedView | None:
    """A query as a versioned view; None if it is none."""
    return _of_ranks(query) or _of_last_values(query) or _of_view(query)


def _of_ranks(query: LogicalQuery) -> VersionedView | None:
    """``ROW_NUMBER() OVER (PARTITION BY … ORDER BY time DESC) = 1``, or ``ORDER BY time DESC LIMIT 1``."""
    query = finished(query)
    over = query.over
    if over is None or over.limit != 1 or over.skipped or [each.function for each in over.calls] != ["row_number"]:
        return None
    if len(over.by) != 1 or not over.by[0][1] or closing_of(optimize(query)) is not None:
        return None
    (call,), ((time, _),) = over.calls, over.by
    if not _is_time(time, query):
        return None
    first = exp.cast(exp.Literal.number(1), call.type)
    rows = replace(query, over=None, filters=over.conditions)
    return _view(rows, tuple(key.expression for key in over.partition), time, query, {call.name: first})


def _of_last_values(query: LogicalQuery) -> VersionedView | None:
    """GROUP BY with values of the newest row alone: ``last_value``, ``max_by(…, time)`` and ``max(time)``."""
    aggregation = query.aggregation
    if aggregation is None or not aggregation.calls or closing_of(optimize(query)) is not None:
        return None
    times = [_time_of(call, query) for call in aggregation.calls]
    if any(time is None or time != times[0] or not _is_time(time, query) for time in times):
        return None
    assert times[0] is not None
    values = {call.name: call.arguments[0] for call in aggregation.calls}
    values |= {key.name: key.expression for key in aggregation.keys}
    rows = replace(query, aggregation=None, filters=aggregation.conditions)
    return _view(rows, tuple(key.expression for key in aggregation.keys), times[0], query, values)


def _of_view(query: LogicalQuery) -> VersionedView | None:
    """A query that only filters and names the rows of a view."""
    if not query.is_plain or not isinstance(query.root, Leaf) or query.ordering is not None:
        return None
    input = query.root.input
    if input.results is None or len(input.results.queries) != 1 or input.windows:
        return None
    view = versioned_view(input.results.queries[0])
    if view is None:
        return None
    values = {input.physical(each.name): each.expression for each in view.outputs}
    own = _view(view.rows, view.key, view.time, replace(query, filters=(*input.filters, *query.filters)), values)
    return replace(own, tests=(*view.tests, *own.tests))


def _view(
    rows: LogicalQuery,
    key: tuple[exp.Expr, ...],
    time: exp.Expr,
    query: LogicalQuery,
    values: Mapping[str, exp.Expr],
) -> VersionedView:
    """The view with the columns and conditions of a query, in which ``values`` stand for columns."""
    assert isinstance(time, exp.Column)
    outputs = tuple(replace(each, expression=_with(each.expression, values)) for each in query.outputs)
    tests = tuple(_with(each, values) for each in query.filters)
    return VersionedView(replace(rows, outputs=()), key, time, outputs, tests)


def _with(expression: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.name not in values:
            return node
        found = values[node.name].copy()
        return exp.paren(found, copy=False) if isinstance(found, exp.Binary | exp.Unary) else found

    made: exp.Expr = expression.copy().transform(replaced, copy=False)
    return made


def _time_of(call: AggregateCall, query: LogicalQuery) -> exp.Expr | None:
    """The time whose newest row a function takes its value from; None for any other function."""
    if call.condition is not None:
        return None
    match call.function:
        case Function.LAST if call.time is not None:
            input = query.inputs[call.time]
            return column_of(input.physical(input.time.column))
        case Function.MAX_BY:
            return call.arguments[1]
        case Function.MAX:
            return call.arguments[0]
    return None


def _is_time(expression: exp.Expr, query: LogicalQuery) -> bool:
    """Whether it is the event time of rows that are always there."""
    known = query.columns.get(expression.name) if isinstance(expression, exp.Column) else None
    if known is None or known.input < 0 or known.input in nullable(query.root):
        return False
    input = query.inputs[known.input]
    return input.is_timed and not input.stream.outside and input.is_time(known.column)
