"""GROUP BY, HAVING and aggregate functions.

Keys and values of functions become columns (``$g0``, ``$a0``); the SELECT list and HAVING are rewritten over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.bind.scope import Scope
from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, Position, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import NUMBERS
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import AggregateCall, Aggregation, GroupKey, OutputColumn
from watersmeet.plan.logical.tree import Input, InputColumn

_T = exp.DataType.Type
_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Count: Function.COUNT,
    exp.CountIf: Function.COUNT,
    exp.Sum: Function.SUM,
    exp.Avg: Function.AVG,
    exp.Min: Function.MIN,
    exp.Max: Function.MAX,
    exp.Stddev: Function.STDDEV_SAMP,
    exp.StddevSamp: Function.STDDEV_SAMP,
    exp.StddevPop: Function.STDDEV_POP,
    exp.Variance: Function.VAR_SAMP,
    exp.VariancePop: Function.VAR_POP,
    exp.First: Function.FIRST,
    exp.FirstValue: Function.FIRST,
    exp.Last: Function.LAST,
    exp.LastValue: Function.LAST,
    exp.AnyValue: Function.FIRST,
    exp.ApproxDistinct: Function.APPROX_COUNT_DISTINCT,
}
# Functions that are computed as another one and keep their own name in results and errors.
_OWN_NAMES: dict[type[exp.Expr], str] = {exp.CountIf: "count_if", exp.AnyValue: "any_value"}
_OTHER_NAMES = {"mean": Function.AVG, "std": Function.STDDEV_SAMP}
# Other aggregates of Spark that sqlglot parses as scalar functions.
_UNKNOWN_NAMES = {
    "any", "count_min_sketch", "every", "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "product", "some",
    "try_avg", "try_sum",
}  # fmt: skip
_NAMES = (
    "count, sum, avg, min, max, first, last, stddev, variance, their _pop and _samp, approx_count_distinct, count_if,"
    " any_value"
)
_NULLS = (exp.IgnoreNulls, exp.RespectNulls)
_UNCOMPARED = (_T.ARRAY, _T.MAP, _T.STRUCT)
_GROUPINGS = {"rollup": "ROLLUP", "cube": "CUBE", "grouping_sets": "GROUPING SETS", "all": "GROUP BY ALL"}


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate function, supported or not."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _UNKNOWN_NAMES | _OTHER_NAMES.keys()
    return isinstance(node, exp.AggFunc | exp.Any | exp.Filter)


def is_aggregated(select: exp.Select) -> bool:
    """Whether a select has GROUP BY, HAVING or aggregates."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(is_aggregate(node) for item in select.expressions for node in item.walk())


def call_name(node: exp.Expr) -> str:
    """What a column is called that is an aggregate function without an alias: the call, as it was written."""
    return _text(node) if is_aggregate(node) or isinstance(node, _NULLS) else ""


def bind_aggregates(
    select: exp.Select,
    outputs: Sequence[OutputColumn],
    scope: Scope,
    inputs: Sequence[Input],
    columns: Mapping[str, InputColumn],
    conditions: Sequence[exp.Expr],
) -> tuple[Aggregation, list[OutputColumn], list[exp.Expr]]:
    """Return the aggregation of a select, its outputs over the results, and the conditions of HAVING over them.

    ``outputs`` are its columns with all names resolved, ``conditions`` those of WHERE.

    Raises ``BindError`` for columns that are neither grouped nor aggregated and for invalid types, and
    ``UnsupportedError`` for functions and clauses that are not supported.
    """
    for condition in conditions:
        _refuse_delta(condition)
    if select.args.get("order"):
        raise UnsupportedError(
            "ORDER BY emits rows once they are final, but an aggregate updates its rows as long as it runs",
            hint="leave out ORDER BY",
            position=position_of(select.args["order"].expressions[0]),
        )
    binder = _AggregateBinder(scope, inputs, columns)
    group = select.args.get("group")
    if group is not None:
        binder.group_by(group, select, outputs)
    rewritten = [OutputColumn(each.name, binder.rewrite(each.expression), each.renamed_from) for each in outputs]
    having = select.args.get("having")
    tests = [binder.rewrite(binder.having(having.this, select))] if having is not None else []
    return Aggregation(tuple(binder.keys), tuple(binder.calls), tuple(conditions)), rewritten, tests


class _AggregateBinder:
    def __init__(self, scope: Scope, inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> None:
        self.scope = scope
        self.inputs = inputs
        self.columns = columns
        self.keys: list[GroupKey] = []
        self.calls: list[AggregateCall] = []

    # -- GROUP BY --------------------------------------------------------------------------------------------------

    def group_by(self, group: exp.Group, select: exp.Select, outputs: Sequence[OutputColumn]) -> None:
        """Add the keys: expressions, ordinals and aliases of the SELECT list."""
        position = position_of(group)
        for arg, clause in _GROUPINGS.items():
            if group.args.get(arg):
                raise _no_grouping(clause, position)
        for item in group.expressions:
            if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
                raise _no_grouping(f"{type(item).__name__.upper()} in GROUP BY", position_of(item) or position)
            expression = self._group_item(item, select, outputs)
            _refuse_nested(expression, "GROUP BY", item)
            _refuse_delta(expression)
            unnested = expression.unnest()
            if all(key.expression != unnested for key in self.keys):
                kind = self._type(unnested, item, "GROUP BY")
                _check_comparable(kind, f"GROUP BY {plain_sql(unnested)}", position_of(item))
                self.keys.append(GroupKey(f"$g{len(self.keys)}", unnested, kind))

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
        for nested in condition.find_all(exp.Select, exp.Window):
            raise UnsupportedError(
                "HAVING cannot contain a subquery or a window function", position=position_of(nested)
            )

        def replace(node: exp.Expr) -> exp.Expr:
            if not is_aggregate(node) and not isinstance(node, exp.Column):
                return node
            named = _named(node, select)
            found = self.scope.substitute(node if named is None else named)
            return exp.paren(found, copy=False) if isinstance(found, exp.Binary | exp.Unary) else found

        return condition.copy().transform(replace, copy=False)

    # -- expressions over aggregates -------------------------------------------------------------------------------

    def rewrite(self, expression: exp.Expr) -> exp.Expr:
        """Rewrite an expression over the columns of keys and of functions' values."""

        def replace(node: exp.Expr) -> exp.Expr:
            plain = node.unnest()
            for key in self.keys:
                if key.expression == plain:
                    return _column(key.name)
            if is_aggregate(node) or (isinstance(node, _NULLS) and is_aggregate(node.this)):
                return _column(self._call(node))
            if isinstance(node, exp.Column) and node.name != TP_DELTA:
                name = plain_sql(node)
                hint = f"add {name} to GROUP BY, or use min({name}), max({name}) or first({name})"
                if (unknown := node.find_ancestor(exp.Anonymous)) is not None:
                    hint += f"; {unknown.name} is no aggregate here: there are {_NAMES}"
                raise BindError(
                    f"{name} is neither grouped nor aggregated: a group may have several values",
                    hint=hint,
                    position=position_of(node),
                )
            return node

        return expression.copy().transform(replace, copy=False)

    def _call(self, node: exp.Expr) -> str:
        """Return the column of a call's value; equal calls share one."""
        call = self._bound(node)
        for known in self.calls:
            if (known.function, known.arguments, known.condition) == (call.function, call.arguments, call.condition):
                return known.name
        self.calls.append(call)
        return call.name

    def _bound(self, node: exp.Expr) -> AggregateCall:
        text, position = _text(node), position_of(node)
        node, condition, takes_nulls = _unwrapped(node)
        if condition is not None:
            _refuse_nested(condition, "FILTER", node)
        function, arguments = _function_of(node)
        for argument in arguments:
            _refuse_nested(argument, text, node)
            _refuse_delta(argument)
        if isinstance(node, exp.CountIf):
            (test,) = arguments
            _check_truth(self._type(test, node, text), test, text, position)
            condition = exp.and_(*([condition] if condition is not None else []), test, copy=True)
            arguments = []
        if function is Function.COUNT and all(isinstance(each, exp.Literal) for each in arguments):
            arguments = []
        if len(arguments) > 1 and not function.is_distinct:
            # count(a, b) counts the rows in which neither is NULL
            there = [_is_there(argument) for argument in arguments]
            condition = exp.and_(*([condition] if condition is not None else []), *there, copy=True)
            arguments = []
        if function.is_timed and not takes_nulls:
            condition = exp.and_(*([condition] if condition is not None else []), _is_there(arguments[0]), copy=True)
        kinds = [self._type(argument, node, text) for argument in arguments]
        for argument, kind in zip(arguments, kinds, strict=True):
            _check_type(function, argument, kind, text, position)
        return AggregateCall(
            name=f"$a{len(self.calls)}",
            function=function,
            arguments=tuple(arguments),
            type=kinds[0] if kinds else exp.DataType.build("INT", dialect="spark"),
            condition=condition,
            time=self._time_of(arguments[0], text, position) if function.is_timed else None,
            text=text,
            position=position,
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
        kind = certain_type(expression, self.columns)
        if kind is None:
            raise BindError(
                f"{what}: the type of {plain_sql(expression)} is not known here",
                hint="CAST it",
                position=position_of(expression) or position_of(near),
            )
        return kind


# -- functions -------------------------------------------------------------------------------------------------------


def _unwrapped(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None, bool]:
    """A call without what stands behind it, the condition of its FILTER, and whether it takes NULLs."""
    condition, takes_nulls = None, True
    while isinstance(node, (exp.Filter, *_NULLS)):
        if isinstance(node, exp.Filter):
            condition = node.expression.this
        elif isinstance(node, exp.IgnoreNulls):
            takes_nulls = False
        node = node.this
    return node, condition, takes_nulls


def _function_of(node: exp.Expr) -> tuple[Function, list[exp.Expr]]:
    """Return the function of a call and its arguments; no arguments if it counts rows."""
    if isinstance(node, exp.Anonymous):
        function = _OTHER_NAMES.get(node.name.lower())
        first, *more = node.expressions or [None]
    else:
        function = _FUNCTIONS.get(type(node))
        first, more = node.this, node.expressions
    if function is None:
        raise UnsupportedError(
            f"{plain_sql(node)}: this aggregate is not supported over streams",
            hint=f"there are {_NAMES}, and count(DISTINCT …)",
            position=position_of(node),
        )
    if isinstance(first, exp.Distinct):
        if isinstance(node, exp.Count):
            function, more = Function.COUNT_DISTINCT, first.expressions[1:]
        elif function not in (Function.MIN, Function.MAX):
            raise UnsupportedError(
                f"{_text(node)}: of the functions that tell equal values apart, only count takes DISTINCT",
                position=position_of(node),
            )
        first = first.expressions[0]
    if isinstance(node, exp.Count) and (first is None or isinstance(first, exp.Star)):
        return function, []
    many = isinstance(node, exp.Count) or function.is_distinct
    if isinstance(node, exp.CountIf) and (second := node.args.get("zero_on_all_null")) is not None:
        more = [second]
    if first is None or (more and not many) or any(each.find(exp.Star, exp.Order) for each in (first, *more)):
        raise UnsupportedError(f"{_text(node)}: {_name(node)} takes one expression", position=position_of(node))
    return function, [first, *more]


def _text(node: exp.Expr) -> str:
    """Return a call as users write it."""
    if isinstance(node, exp.Filter):
        return f"{_text(node.this)} FILTER (WHERE {plain_sql(node.expression.this)})"
    if isinstance(node, _NULLS):
        return f"{_text(node.this)} IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else _text(node.this)
    name = _name(node)
    if name is None:
        return plain_sql(node)
    given = node.expressions if isinstance(node, exp.Anonymous) else [node.this, *node.expressions]
    return f"{name}({', '.join(plain_sql(each) for each in given if each is not None)})"


def _name(node: exp.Expr) -> str | None:
    """What a function is called here; None for one that there is not."""
    if (own := _OWN_NAMES.get(type(node))) is not None:
        return own
    named = _OTHER_NAMES.get(node.name.lower()) if isinstance(node, exp.Anonymous) else _FUNCTIONS.get(type(node))
    return named.value if named is not None else None


# -- checks ----------------------------------------------------------------------------------------------------------


def _check_type(
    function: Function, argument: exp.Expr, kind: exp.DataType, text: str, position: Position | None
) -> None:
    """Raise ``BindError`` if a function does not accept values of a type."""
    if function.takes_numbers and not kind.is_type(*NUMBERS):
        raise BindError(
            f"{text}: {plain_sql(argument)} is {kind.sql(dialect='spark')}, and {function.value} takes numbers",
            hint="CAST it, if it holds numbers",
            position=position_of(argument) or position,
        )
    if function is not Function.COUNT:
        _check_comparable(kind, text, position_of(argument) or position)


def _check_truth(kind: exp.DataType, test: exp.Expr, text: str, position: Position | None) -> None:
    if not kind.is_type(_T.BOOLEAN):
        raise BindError(
            f"{text}: {plain_sql(test)} is {kind.sql(dialect='spark')}, and count_if takes a condition",
            hint="compare it, as in count_if(x > 0)",
            position=position_of(test) or position,
        )


def _check_comparable(kind: exp.DataType, what: str, position: Position | None) -> None:
    if kind.is_type(*_UNCOMPARED):
        raise BindError(
            f"{what}: values of {kind.sql(dialect='spark')} cannot be compared",
            hint="use a part of it, or to_json",
            position=position,
        )


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


def _no_grouping(clause: str, position: Position | None) -> UnsupportedError:
    return UnsupportedError(
        f"{clause} is not supported over streams", hint="name the expressions that group rows", position=position
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


def _column(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=True))
