"""DISTINCT, EXCEPT and INTERSECT as aggregations of bound queries.

With ALL, the n-th of equal rows is a row of its own: EXCEPT and INTERSECT are of rows with their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.aggregate_functions import check_comparable
from watersmeet.bind.over import order_of
from watersmeet.bind.time_units import counting_as
from watersmeet.bind.window_functions import call_of
from watersmeet.errors import BindError
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.query import AggregateCall, Aggregation, GroupKey, LogicalQuery, OutputColumn, Over

#: The column that tells from which side of EXCEPT or INTERSECT a row is.
_MARK = "$side"
#: The column with the number of a row among those that equal it.
_NUMBER = "$n"


def distinct(query: LogicalQuery) -> LogicalQuery:
    """The query that returns each of the results once; the query itself neither aggregates nor ranks.

    Raises ``BindError`` for a column whose type is not known, or whose values cannot be compared.
    """
    keys = tuple(_key(place, column, query) for place, column in enumerate(query.outputs))
    outputs = tuple(
        OutputColumn(each.name, counting_as(column_of(key.name), each.expression), each.renamed_from)
        for each, key in zip(query.outputs, keys, strict=True)
    )
    return replace(query, aggregation=Aggregation(keys, (), query.filters), outputs=outputs, filters=())


def refuse_uneven(sides: Sequence[LogicalQuery], word: str) -> None:
    """Raise ``BindError`` for two queries that do not return as many columns."""
    first, second = (len(each.outputs) for each in sides)
    if first != second:
        raise BindError(
            f"{word} combines {first} columns with {second}",
            hint="select as many columns on each side",
            position=sides[1].text.position,
        )


def with_mark(query: LogicalQuery, side: int) -> LogicalQuery:
    """The query with one more column: the side of EXCEPT or INTERSECT that it is."""
    return replace(query, outputs=(*query.outputs, OutputColumn(_MARK, exp.Literal.number(side))))


def numbered(query: LogicalQuery) -> LogicalQuery:
    """A plain query with one more column: the number of a row among those that equal it.

    Raises ``BindError`` as ``distinct`` does.
    """
    keys = (_key(place, column, query) for place, column in enumerate(query.outputs))
    partition = tuple(replace(key, name=f"$p{place}") for place, key in enumerate(keys))
    order = exp.Order(expressions=[exp.Ordered(this=exp.Literal.number(1), nulls_first=True)])
    window = exp.Window(this=exp.RowNumber(), order=order)
    call = call_of(window, "$v0", query.columns, query.inputs)
    over = Over(partition, tuple(order_of(window, query.columns)), (call,), None, query.filters)
    outputs = (*query.outputs, OutputColumn(_NUMBER, column_of(call.name)))
    return replace(query, over=over, outputs=outputs, filters=(), ordering=None)


def without_numbers(query: LogicalQuery) -> LogicalQuery:
    """The query without the column that ``numbered`` added."""
    return replace(query, outputs=tuple(each for each in query.outputs if each.name != _NUMBER))


def of_sides(query: LogicalQuery, *, keeps_common: bool) -> LogicalQuery:
    """Of all rows of two marked sides: each row of the first side once, if the second has it too, or if it has not."""
    *outputs, mark = query.outputs
    found = distinct(replace(query, outputs=tuple(outputs)))
    assert found.aggregation is not None
    calls = tuple(_count(side, mark.expression, query) for side in (0, 1))
    first, second = (column_of(call.name) for call in calls)
    there = exp.GT if keeps_common else exp.EQ
    tests = (
        exp.GT(this=first, expression=exp.Literal.number(0)),
        there(this=second, expression=exp.Literal.number(0)),
    )
    return replace(found, aggregation=replace(found.aggregation, calls=calls), filters=tests)


def _key(place: int, column: OutputColumn, query: LogicalQuery) -> GroupKey:
    kind = certain_type(column.expression, query.columns)
    position = position_of(column.expression) or query.text.position
    if kind is None:
        raise BindError(f"DISTINCT: the type of {column.name} is not known here", hint="CAST it", position=position)
    check_comparable(kind, f"DISTINCT {column.name}", position)
    return GroupKey(f"$g{place}", column.expression.unnest(), kind)


def _count(side: int, mark: exp.Expr, query: LogicalQuery) -> AggregateCall:
    is_side = exp.EQ(this=mark.copy(), expression=exp.Literal.number(side))
    return AggregateCall(
        name=f"$a{side}",
        function=Function.COUNT,
        arguments=(),
        type=exp.DataType.build("INT", dialect="spark"),
        condition=is_side,
        time=None,
        text=f"count of side {side + 1}",
        position=query.text.position,
    )


def column_of(name: str) -> exp.Expr:
    """The column of a key, or of a function's value."""
    return exp.column(exp.to_identifier(name, quoted=True))
