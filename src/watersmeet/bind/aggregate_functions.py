"""Aggregate functions: their names and calls in SQL, and the types that they accept."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import BindError, Position, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import INSTANTS, NESTED, NUMBERS, TEXTS
from watersmeet.kernels.aggregate.functions import Function

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
    exp.ArgMin: Function.MIN_BY,
    exp.ArgMax: Function.MAX_BY,
    exp.ArrayAgg: Function.COLLECT_LIST,
    exp.ArrayUniqueAgg: Function.COLLECT_SET,
    exp.GroupConcat: Function.LISTAGG,
    exp.Quantile: Function.PERCENTILE,
    exp.Median: Function.PERCENTILE,
    exp.ApproxQuantile: Function.PERCENTILE_APPROX,
    exp.LogicalAnd: Function.MIN,
    exp.LogicalOr: Function.MAX,
    exp.Any: Function.MAX,
}
# With DISTINCT, functions to which it makes a difference or none.
_DISTINCT = {
    Function.COUNT: Function.COUNT_DISTINCT,
    Function.SUM: Function.SUM_DISTINCT,
    Function.AVG: Function.AVG_DISTINCT,
    Function.COLLECT_LIST: Function.COLLECT_SET,
    Function.LISTAGG: Function.LISTAGG_DISTINCT,
    **{same: same for same in (Function.MIN, Function.MAX, Function.COLLECT_SET)},
}
# Functions computed as another one that keep their own name in results and errors.
_OWN_NAMES: dict[type[exp.Expr], str] = {
    exp.CountIf: "count_if",
    exp.AnyValue: "any_value",
    exp.Median: "median",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.Any: "any",
    exp.Grouping: "grouping",
    exp.GroupingId: "grouping_id",
}
# Functions of conditions: of FALSE and TRUE, all are TRUE if the least is, and some if the greatest is.
_TRUTHS = (exp.LogicalAnd, exp.LogicalOr, exp.Any)
_TRUTH_NAMES = {"every": Function.MIN, "some": Function.MAX}
_OTHER_NAMES = {"mean": Function.AVG, "std": Function.STDDEV_SAMP, **_TRUTH_NAMES}
# Where a function has its second argument, which is no list.
_SECOND: dict[type[exp.Expr], str] = {exp.ArgMin: "expression", exp.ArgMax: "expression"}
# And those arguments that are literals.
_LITERALS = ("separator", "quantile")
# Other aggregates of Spark that sqlglot parses as scalar functions.
_UNKNOWN_NAMES = {
    "count_min_sketch", "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "product", "try_avg", "try_sum",
}  # fmt: skip
SUPPORTED_NAMES = (
    "count, sum, avg, min, max, first, last, stddev, variance, their _pop and _samp, approx_count_distinct, count_if,"
    " any_value, min_by, max_by, collect_list, collect_set, listagg, percentile, percentile_approx, median, bool_and,"
    " bool_or"
)
_DAYS = (exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMPNTZ)
NULL_CLAUSES = (exp.IgnoreNulls, exp.RespectNulls)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate function, supported or not."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _UNKNOWN_NAMES | _OTHER_NAMES.keys()
    return isinstance(node, exp.AggFunc | exp.Any | exp.Filter)


def is_aggregated(select: exp.Select) -> bool:
    """Whether a select has GROUP BY, HAVING or aggregates that are no window functions."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(is_aggregate(node) for item in select.expressions for node in item.walk(prune=is_apart))


def is_apart(node: exp.Expr) -> bool:
    """Whether aggregates below a node are none of the select's own."""
    return isinstance(node, exp.Window | exp.Select)


def call_name(node: exp.Expr) -> str:
    """Return the column name of an aggregate without an alias: the call as written; '' for other expressions."""
    return call_text(node) if is_aggregate(node) or isinstance(node, NULL_CLAUSES) else ""


def unwrap_call(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None, bool]:
    """Return a call without FILTER and IGNORE NULLS, the condition of FILTER, and whether the call reads NULLs."""
    condition, takes_nulls = None, True
    while isinstance(node, (exp.Filter, *NULL_CLAUSES)):
        if isinstance(node, exp.Filter):
            condition = node.expression.this
        elif isinstance(node, exp.IgnoreNulls):
            takes_nulls = False
        node = node.this
    return node, condition, takes_nulls


def function_of(node: exp.Expr) -> tuple[Function, list[exp.Expr]]:
    """Return the function of a call and its arguments; no arguments if it counts rows."""
    if isinstance(node, exp.Anonymous):
        function = _OTHER_NAMES.get(node.name.lower())
        first, *more = node.expressions or [None]
    else:
        function = _FUNCTIONS.get(type(node))
        first, more = node.this, node.expressions
        if (second := node.args.get(_SECOND.get(type(node), ""))) is not None:
            more = [second]
        if isinstance(node, exp.Any):
            first = first.unnest()
    if function is None:
        raise UnsupportedError(
            f"{plain_sql(node)}: this aggregate is not supported over streams",
            hint=f"there are {SUPPORTED_NAMES}, and count(DISTINCT …)",
            position=position_of(node),
        )
    if isinstance(first, exp.Order):
        first = _in_value_order(first, node)
    if isinstance(first, exp.Distinct):
        if function not in _DISTINCT or isinstance(node, exp.CountIf):
            raise UnsupportedError(
                f"{call_text(node)}: {_name(node)} does not take DISTINCT",
                hint="count, sum, avg, min, max, collect_list and listagg take it",
                position=position_of(node),
            )
        function = _DISTINCT[function]
        first, more = first.expressions[0], [*first.expressions[1:], *more]
    if isinstance(node, exp.Count) and (first is None or isinstance(first, exp.Star)):
        return function, []
    many = isinstance(node, exp.Count) or function.counts_distinct
    if function.is_ordered and (first is None or len(more) != 1):
        raise UnsupportedError(f"{call_text(node)}: {_name(node)} takes two expressions", position=position_of(node))
    many = many or function.is_ordered
    if isinstance(node, exp.CountIf) and (second := node.args.get("zero_on_all_null")) is not None:
        more = [second]
    if first is None or (more and not many) or any(each.find(exp.Star, exp.Order) for each in (first, *more)):
        raise UnsupportedError(f"{call_text(node)}: {_name(node)} takes one expression", position=position_of(node))
    return function, [first, *more]


def call_text(node: exp.Expr) -> str:
    """Return a call as users write it."""
    if isinstance(node, exp.Filter):
        return f"{call_text(node.this)} FILTER (WHERE {plain_sql(node.expression.this)})"
    if isinstance(node, NULL_CLAUSES):
        return f"{call_text(node.this)} IGNORE NULLS" if isinstance(node, exp.IgnoreNulls) else call_text(node.this)
    name = _name(node)
    if name is None:
        return plain_sql(node)
    if isinstance(node, exp.Grouping | exp.GroupingId):
        return f"{name}({', '.join(map(plain_sql, node.expressions))})"
    if isinstance(node.this, exp.Order):
        node = node.copy()
        node.set("this", node.this.this)
    given = node.expressions if isinstance(node, exp.Anonymous) else [node.this, *node.expressions]
    given = [*given, *(node.args.get(name) for name in (_SECOND.get(type(node), ""), *_LITERALS))]
    return f"{name}({', '.join(plain_sql(each) for each in given if each is not None)})"


def _name(node: exp.Expr) -> str | None:
    """Return the name of a function; None if it is not supported."""
    if (own := _OWN_NAMES.get(type(node))) is not None:
        return own
    if isinstance(node, exp.Anonymous):
        if (name := node.name.lower()) in _TRUTH_NAMES:
            return name
        named = _OTHER_NAMES.get(name)
    else:
        named = _FUNCTIONS.get(type(node))
    return named.value if named is not None else None


def name_of(node: exp.Expr) -> str:
    """Return the name of a supported function."""
    return _name(node) or ""


def is_truth(node: exp.Expr) -> bool:
    """Whether a function takes a condition, and tells whether it is true of all rows or of some."""
    return isinstance(node, _TRUTHS) or (isinstance(node, exp.Anonymous) and node.name.lower() in _TRUTH_NAMES)


def _in_value_order(order: exp.Order, node: exp.Expr) -> exp.Expr:
    """Return the argument of WITHIN GROUP (ORDER BY …), if the order is that of the argument's values."""
    value: exp.Expr = order.this
    plain = value.expressions[0] if isinstance(value, exp.Distinct) else value
    first, *more = order.expressions
    if more or first.args.get("desc") or first.this != plain:
        raise UnsupportedError(
            f"{_name(node)}: WITHIN GROUP can only order by the argument itself, ascending",
            hint="leave it out: values come in their order",
            position=position_of(first.this) or position_of(node),
        )
    return value


def check_type(
    function: Function, argument: exp.Expr, kind: exp.DataType, text: str, position: Position | None
) -> None:
    """Raise ``BindError`` if a function does not accept values of a type."""
    if function.takes_numbers and not kind.is_type(*NUMBERS):
        raise BindError(
            f"{text}: {plain_sql(argument)} is {kind.sql(dialect='spark')}, and {function.value} takes numbers",
            hint="CAST it, if it holds numbers",
            position=position_of(argument) or position,
        )
    if function is Function.PERCENTILE_APPROX and not kind.is_type(*NUMBERS, *INSTANTS, *_DAYS):
        raise BindError(
            f"{text}: {plain_sql(argument)} is {kind.sql(dialect='spark')}, and {function.value} takes numbers, dates"
            " and timestamps",
            position=position_of(argument) or position,
        )
    if function.joins_texts and not kind.is_type(*TEXTS):
        raise BindError(
            f"{text}: {plain_sql(argument)} is {kind.sql(dialect='spark')}, and listagg takes texts",
            hint="CAST it to STRING",
            position=position_of(argument) or position,
        )
    if function is not Function.COUNT:
        check_comparable(kind, text, position_of(argument) or position)


def check_condition(kind: exp.DataType, test: exp.Expr, text: str, name: str, position: Position | None) -> None:
    """Raise ``BindError`` unless the argument of a function, as count_if, is a condition."""
    if not kind.is_type(exp.DataType.Type.BOOLEAN):
        raise BindError(
            f"{text}: {plain_sql(test)} is {kind.sql(dialect='spark')}, and {name} takes a condition",
            hint=f"compare it, as in {name}(x > 0)",
            position=position_of(test) or position,
        )


def check_comparable(kind: exp.DataType, what: str, position: Position | None) -> None:
    """Raise ``BindError`` for a type whose values cannot be compared."""
    if kind.is_type(*NESTED):
        raise BindError(
            f"{what}: values of {kind.sql(dialect='spark')} cannot be compared",
            hint="use a part of it, or to_json",
            position=position,
        )
