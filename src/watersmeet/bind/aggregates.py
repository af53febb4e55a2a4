"""GROUP BY, HAVING and aggregate functions.

Keys and values of functions become columns (``$g0``, ``$a0``); the SELECT list and HAVING are rewritten over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.bind.aggregate_functions import (
    NULL_CLAUSES,
    SUPPORTED_NAMES,
    call_text,
    check_comparable,
    check_condition,
    check_type,
    function_of,
    is_aggregate,
    is_truth,
    name_of,
    unwrap_call,
)
from watersmeet.bind.aggregate_literals import given_of
from watersmeet.bind.grouping_sets import CALLS, Groupings
from watersmeet.bind.rewriting import column_of
from watersmeet.bind.scope import Scope
from watersmeet.bind.time_units import counting_as, with_numbers
from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, Position, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import is_same, plain_sql
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.plan.logical.certain_types import known_type
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import AggregateCall, Aggregation, GroupKey, OutputColumn
from watersmeet.plan.logical.tree import Input, InputColumn


def bind_aggregates(
    select: exp.Select,
    outputs: Sequence[OutputColumn],
    scope: Scope,
    inputs: Sequence[Input],
    columns: Mapping[str, InputColumn],
    conditions: Sequence[exp.Expr],
) -> tuple[Aggregation, Groupings, list[OutputColumn], list[exp.Expr]]:
    """Return the aggregation of a select, its outputs over the results, and the conditions of HAVING over them.

    The aggregation is by all keys; where there are grouping sets, each groups by some of them.
    ``outputs`` are its columns with all names resolved, ``conditions`` those of WHERE.

    Raises ``BindError`` for columns that are neither grouped nor aggregated and for invalid types, and
    ``UnsupportedError`` for functions and clauses that are not supported.
    """
    for condition in conditions:
        _refuse_delta(condition)
    if select.args.get("order"):
        raise UnsupportedError(
            "ORDER BY emits rows once they are final, but an aggregate updates its rows as long as it runs",
            hint="leave out ORDER BY, or add LIMIT; results of EMIT FINAL are ordered by a query around them",
            position=position_of(select.args["order"].expressions[0]),
        )
    binder = _AggregateBinder(scope, inputs, columns)
    group = select.args.get("group")
    if group is not None:
        binder.group_by(group, select, outputs)
    rewritten = [OutputColumn(each.name, binder.rewrite(each.expression), each.renamed_from) for each in outputs]
    having = select.args.get("having")
    tests = [binder.rewrite(binder.having(having.this, select))] if having is not None else []
    aggregation = Aggregation(tuple(binder.keys), tuple(binder.calls), tuple(conditions))
    return aggregation, binder.groupings, rewritten, tests


class _AggregateBinder:
    def __init__(self, scope: Scope, inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> None:
        self.scope = scope
        self.inputs = inputs
        self.columns = columns
        self.keys: list[GroupKey] = []
        self.calls: list[AggregateCall] = []
        self.groupings = Groupings()

    # -- GROUP BY --------------------------------------------------------------------------------------------------

    def group_by(self, group: exp.Group, select: exp.Select, outputs: Sequence[OutputColumn]) -> None:
        """Add the keys: expressions, ordinals and aliases of the SELECT list."""
        for item in group.expressions:
            self._key(item, select, outputs)
        for each in group.args.get("grouping_sets") or ():
            names = (self._key(item, select, outputs) for item in each.expressions)
            self.groupings.sets.append(tuple(dict.fromkeys(names)))

    def _key(self, item: exp.Expr, select: exp.Select, outputs: Sequence[OutputColumn]) -> str:
        """Return the name of a key; add it if it is new."""
        if isinstance(item, exp.Tuple):
            raise UnsupportedError(
                "TUPLE in GROUP BY is not supported over streams",
                hint="name the expressions that group rows",
                position=position_of(item),
            )
        expression = self._group_item(item, select, outputs)
        _refuse_nested(expression, "GROUP BY", item)
        _refuse_delta(expression)
        unnested = expression.unnest()
        known = next((key.name for key in self.keys if is_same(key.expression, unnested)), None)
        if known is not None:
            return known
        kind = self._type(unnested, item, "GROUP BY")
        check_comparable(kind, f"GROUP BY {plain_sql(item)}", position_of(item))
        self.keys.append(GroupKey(f"$g{len(self.keys)}", unnested, kind))
        return self.keys[-1].name

    def _group_item(self, item: exp.Expr, select: exp.Select, outputs: Sequence[OutputColumn]) -> exp.Expr:
        if isinstance(item, exp.Literal) and item.is_int:
            number = int(item.name)
            if not 1 <= number <= len(outputs):
                raise BindError(
                    f"GROUP BY {number}: the SELECT list has {len(outputs)} columns", position=position_of(item)
                )
            return outputs[number - 1].expression
        named = _named(item, select)
        return self.scope.substitute(named if named is not None and not self._knows(item) else item)

    def _knows(self, item: exp.Expr) -> bool:
        return any(relation.find(item.name) is not None for relation in self.scope.relations)

    # -- HAVING ----------------------------------------------------------------------------------------------------

    def having(self, condition: exp.Expr, select: exp.Select) -> exp.Expr:
        """Resolve a condition of HAVING; names outside of functions may be aliases of the SELECT list."""
        for nested in condition.find_all(exp.Window):
            raise UnsupportedError("HAVING cannot contain a window function", position=position_of(nested))

        def replace(node: exp.Expr) -> exp.Expr:
            if not is_aggregate(node) and not isinstance(node, exp.Column):
                return node
            named = _named(node, select)
            found = self.scope.substitute(node if named is None else named)
            return exp.paren(found, copy=False) if isinstance(found, exp.Binary | exp.Unary) else found

        return with_numbers(condition.copy().transform(replace, copy=False))

    # -- expressions over aggregates -------------------------------------------------------------------------------

    def rewrite(self, expression: exp.Expr) -> exp.Expr:
        """Rewrite an expression over the columns of keys and of functions' values."""

        def replace(node: exp.Expr) -> exp.Expr:
            plain = node.unnest()
            for key in self.keys:
                if is_same(key.expression, plain):
                    return counting_as(column_of(key.name), plain)
            if isinstance(node, CALLS):
                return column_of(self._grouping(node))
            if is_aggregate(node) or (isinstance(node, NULL_CLAUSES) and is_aggregate(node.this)):
                return counting_as(column_of(self._call(node)), node)
            if isinstance(node, exp.Column) and node.name != TP_DELTA:
                name = plain_sql(node)
                hint = f"add {name} to GROUP BY, or use min({name}), max({name}) or first({name})"
                if (unknown := node.find_ancestor(exp.Anonymous)) is not None:
                    hint += f"; {unknown.name} is no aggregate here: there are {SUPPORTED_NAMES}"
                raise BindError(
                    f"{name} is neither grouped nor aggregated: a group may have several values",
                    hint=hint,
                    position=position_of(node),
                )
            return node

        return expression.copy().transform(replace, copy=False)

    def _grouping(self, node: exp.Expr) -> str:
        """Return the column of a call of grouping or grouping_id."""
        text, position = call_text(node), position_of(node)
        if not self.groupings.sets:
            raise BindError(f"{text} needs ROLLUP, CUBE or GROUPING SETS in GROUP BY", position=position)
        is_one = isinstance(node, exp.Grouping)
        if is_one and len(node.expressions) != 1:
            raise BindError(f"{text}: grouping takes one key", hint="grouping_id takes several", position=position)
        names = [self._grouped(each, text, position) for each in node.expressions]
        return self.groupings.call(names or [key.name for key in self.keys], "TINYINT" if is_one else "BIGINT")

    def _grouped(self, argument: exp.Expr, text: str, position: Position | None) -> str:
        for key in self.keys:
            if is_same(key.expression, argument.unnest()):
                return key.name
        raise BindError(
            f"{text}: {plain_sql(argument)} is no key of GROUP BY",
            hint=f"there are {', '.join(plain_sql(key.expression) for key in self.keys)}",
            position=position_of(argument) or position,
        )

    def _call(self, node: exp.Expr) -> str:
        """Return the column of a call's value; equal calls share one."""
        call = self._bound(node)
        for known in self.calls:
            if known.computes == call.computes:
                return known.name
        self.calls.append(call)
        return call.name

    def _bound(self, node: exp.Expr) -> AggregateCall:
        text, position = call_text(node), position_of(node)
        node, condition, takes_nulls = unwrap_call(node)
        if condition is not None:
            _refuse_nested(condition, "FILTER", node)
        function, arguments = function_of(node)
        for argument in arguments:
            _refuse_nested(argument, text, node)
            _refuse_delta(argument)
        if isinstance(node, exp.CountIf):
            (test,) = arguments
            check_condition(self._type(test, node, text), test, text, "count_if", position)
            condition = exp.and_(*([condition] if condition is not None else []), test, copy=True)
            arguments = []
        if function is Function.COUNT and all(isinstance(each, exp.Literal) for each in arguments):
            arguments = []
        if is_truth(node):
            check_condition(self._type(arguments[0], node, text), arguments[0], text, name_of(node), position)
        if len(arguments) > 1 and function is Function.COUNT:
            # count(a, b) counts the rows in which neither is NULL
            there = [_is_there(argument) for argument in arguments]
            condition = exp.and_(*([condition] if condition is not None else []), *there, copy=True)
            arguments = []
        if function.is_timed and not takes_nulls:
            condition = exp.and_(*([condition] if condition is not None else []), _is_there(arguments[0]), copy=True)
        kinds = [self._type(argument, node, text) for argument in arguments]
        for argument, kind in zip(arguments, kinds, strict=True):
            check_type(function, argument, kind, text, position)
        given, many = given_of(node, function, text)
        return AggregateCall(
            name=f"$a{len(self.calls)}",
            function=function,
            arguments=tuple(arguments),
            type=kinds[0] if kinds else exp.DataType.build("INT", dialect="spark"),
            condition=condition,
            time=self._time_of(arguments[0], text, position) if function.is_timed else None,
            text=text,
            position=position,
            given=given,
            many=many,
        )

    def _time_of(self, argument: exp.Expr, text: str, position: Position | None) -> int:
        """Return the input whose event time orders the values of an argument."""
        read = inputs_of(argument, dict(self.columns))
        if len(read) != 1:
            count = "no stream" if not read else f"{len(read)} streams"
            raise UnsupportedError(
                f"{text} goes by the event time of its argument's stream, but the argument reads {count}",
                hint="take values of columns of one stream",
                position=position_of(argument),
            )
        (input,) = read
        stream = self.inputs[input].stream
        if stream.outside:
            raise UnsupportedError(
                f"{text} goes by event time, but rows of {stream.name}, an external table, have none",
                hint="use min or max",
                position=position_of(argument),
            )
        return input

    def _type(self, expression: exp.Expr, near: exp.Expr, what: str) -> exp.DataType:
        return known_type(expression, self.columns, what, near)


def _refuse_nested(expression: exp.Expr, inside: str, near: exp.Expr) -> None:
    """Raise ``UnsupportedError`` for nodes that a key or an argument cannot contain."""
    for node in expression.walk():
        if is_aggregate(node) or isinstance(node, exp.Window | exp.Select):
            raise UnsupportedError(
                f"{inside} cannot contain an aggregate, a window function or a subquery",
                position=position_of(node) or position_of(near),
            )


def _refuse_delta(expression: exp.Expr) -> None:
    for column in expression.find_all(exp.Column):
        if column.name == TP_DELTA:
            raise BindError(
                f"{TP_DELTA} belongs to the results of an aggregate, not to its input rows",
                hint=f"select it: SELECT …, {TP_DELTA}",
                position=position_of(column),
            )


def _named(node: exp.Expr, select: exp.Select) -> exp.Expr | None:
    """Return the expression of an unqualified name that is an alias in the SELECT list; None otherwise."""
    if not isinstance(node, exp.Column) or node.table:
        return None
    for item in select.expressions:
        if isinstance(item, exp.Alias) and item.alias.lower() == node.name.lower():
            found: exp.Expr = item.this
            return found
    return None


def _is_there(expression: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=exp.paren(expression.copy(), copy=False), expression=exp.null()))
