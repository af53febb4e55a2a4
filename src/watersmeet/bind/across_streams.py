"""What an aggregate or window functions read of several streams, where only Spark can compute it.

The rows below are then those of a query of their own, and Spark computes what is read of its results::

    SELECT sum(a.x % b.y) FROM a JOIN b …      the join  ─  a.x % b.y  ─  the sum
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.inputs import Inputs
from watersmeet.bind.over_chain import unique_name
from watersmeet.bind.relations import Relation
from watersmeet.bind.results import ResultsTime
from watersmeet.plan.across_sides import carry_one_sided, is_allowed, is_strict
from watersmeet.plan.closing import closing_of
from watersmeet.plan.emission import final_in_time
from watersmeet.plan.join_terms import tested
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import Aggregation, GroupKey, LogicalQuery, OutputColumn, Over
from watersmeet.plan.logical.tree import Leaf, nullable, operators_of
from watersmeet.plan.passes import optimize

_Move = Callable[[exp.Expr], exp.Expr]


def needs_results(query: LogicalQuery) -> bool:
    """Whether an aggregate or window functions stand over a join, and Spark has to compute what they read of it."""
    above = query.aggregation or query.over
    if above is None or query.ordering is not None or len(query.inputs) < 2:
        return False
    if isinstance(above, Aggregation) and any(call.time is not None for call in above.calls):
        return False  # values in the order of their own stream's time, which results need not have
    optimized = optimize(query)
    found = optimized.aggregation or optimized.over
    assert found is not None
    padded = nullable(optimized.root)
    if not all(_is_computed(each, optimized, padded) for each in (*_read_by(found), *found.conditions)):
        return True
    return not all(
        _is_carried(condition, optimized, nullable(owner.left) | nullable(owner.right))
        for join in operators_of(optimized.root)
        for owner, condition in tested(join)
    )


def rows_below(query: LogicalQuery) -> LogicalQuery:
    """The rows that an aggregate or window functions read, as a query; its outputs are the columns that they read."""
    above = query.aggregation or query.over
    assert above is not None
    reads = [*_read_by(above), *(each.expression for each in query.outputs), *query.filters]
    columns = {column.name: column for each in reads for column in each.find_all(exp.Column)}
    outputs: list[OutputColumn] = []
    for name, column in columns.items():
        if name in query.columns:
            unique = unique_name(query.columns[name].column, [each.name for each in outputs])
            outputs.append(OutputColumn(unique, column.copy()))
    if not outputs:  # they are only counted, but rows have a column
        outputs.append(OutputColumn("one", exp.Literal.number(1)))
    return replace(query, outputs=tuple(outputs), filters=above.conditions, aggregation=None, over=None)


def time_of_rows(query: LogicalQuery, below: LogicalQuery) -> ResultsTime | None:
    """The event time of ``below``, the rows that a query reads: what says when its groups, or values, are final.

    None where nothing does.
    """
    optimized = optimize(query)
    closing, in_time = closing_of(optimized), final_in_time(optimized)
    if closing is not None:
        column = closing.column
    elif in_time is not None:
        column = query.columns[query.inputs[in_time.input].physical(in_time.column)]
    else:
        return None
    input, lag = query.inputs[column.input], lag_of(optimized.root, column.input)
    name = next((each.name for each in below.outputs if each.expression.name == column.name), None)
    if name is None or lag is None:
        return None
    if (window := input.window_of(column.column)) is not None:
        unit = input.time.unit
        # a row's time lies in its window: the bound is no further behind it than this
        lag += max(window[0].before_end(window[1], unit) - (unit.scale if unit.is_integer else 1), 0)
    return name, column.input, lag


def over_results(
    query: LogicalQuery, below: LogicalQuery, leaf: Leaf, results: Relation, names: Inputs
) -> LogicalQuery:
    """The query with its aggregate or window functions over the ``results`` of ``below``, its rows."""
    columns = {each.expression.name: results.columns[each.name] for each in below.outputs}

    def move(expression: exp.Expr) -> exp.Expr:
        def replaced(node: exp.Expr) -> exp.Expr:
            found = columns.get(node.name) if isinstance(node, exp.Column) else None
            if found is None:
                return node
            moved = found.copy()
            moved.meta.update({key: value for key, value in node.meta.items() if key in ("line", "col")})
            return moved

        result: exp.Expr = expression.copy().transform(replaced, copy=False)
        return result

    return replace(
        query,
        root=leaf,
        columns=names.columns,
        outputs=tuple(replace(each, expression=move(each.expression)) for each in query.outputs),
        filters=tuple(move(each) for each in query.filters),
        aggregation=_moved_aggregation(query.aggregation, move) if query.aggregation is not None else None,
        over=_moved_over(query.over, move) if query.over is not None else None,
    )


def _moved_aggregation(aggregation: Aggregation, move: _Move) -> Aggregation:
    calls = tuple(
        replace(
            call,
            arguments=tuple(move(each) for each in call.arguments),
            condition=move(call.condition) if call.condition is not None else None,
        )
        for call in aggregation.calls
    )
    return Aggregation(_moved_keys(aggregation.keys, move), calls, ())


def _moved_over(over: Over, move: _Move) -> Over:
    return replace(
        over,
        partition=_moved_keys(over.partition, move),
        by=tuple((move(each), descending) for each, descending in over.by),
        calls=tuple(replace(call, arguments=tuple(move(each) for each in call.arguments)) for call in over.calls),
        conditions=(),
    )


def _moved_keys(keys: tuple[GroupKey, ...], move: _Move) -> tuple[GroupKey, ...]:
    return tuple(replace(key, expression=move(key.expression)) for key in keys)


def _read_by(above: Aggregation | Over) -> Iterator[exp.Expr]:
    """What an aggregate or window functions compute of the rows below: keys, orders and arguments."""
    keys = above.keys if isinstance(above, Aggregation) else above.partition
    yield from (key.expression for key in keys)
    if isinstance(above, Over):
        yield from (expression for expression, _ in above.by)
    for call in above.calls:
        yield from call.arguments
    if isinstance(above, Aggregation):
        yield from (call.condition for call in above.calls if call.condition is not None)


def _is_computed(expression: exp.Expr, query: LogicalQuery, padded: frozenset[int]) -> bool:
    """Whether an expression is computed at a source, or by the operator over the rows."""
    read = inputs_of(expression, query.columns)
    if len(read) == 1 and not read & _external(query) and (not read & padded or is_strict(expression)):
        return True
    return _is_carried(expression, query, padded)


def _is_carried(expression: exp.Expr, query: LogicalQuery, padded: frozenset[int]) -> bool:
    """Whether an operator computes an expression, the parts of one stream at their sources."""
    columns, external = dict(query.columns), _external(query)
    carried = carry_one_sided(expression, columns, padded, lambda _, part: f"${len(columns)}", external=external)
    return is_allowed(carried)


def _external(query: LogicalQuery) -> frozenset[int]:
    return frozenset(each.index for each in query.inputs if each.stream.outside)
