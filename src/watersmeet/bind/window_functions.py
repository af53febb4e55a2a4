"""One window function: its call in DuckDB, its type, and its frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.bind.frames import frame_of
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import FRACTIONS, INTEGERS, NUMBERS
from watersmeet.expressions.type_names import spark_type
from watersmeet.kernels.aggregate.functions import Call, Function
from watersmeet.plan.logical.certain_types import known_type
from watersmeet.plan.logical.query import OverCall
from watersmeet.plan.logical.tree import Input, InputColumn

_RANKS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_AGGREGATES: dict[type[exp.Expr], Function] = {
    exp.Count: Function.COUNT,
    exp.Sum: Function.SUM,
    exp.Avg: Function.AVG,
    exp.Min: Function.MIN,
    exp.Max: Function.MAX,
}
_PICKED: dict[type[exp.Expr], str] = {
    exp.FirstValue: "first_value",
    exp.First: "first_value",
    exp.LastValue: "last_value",
    exp.Last: "last_value",
}
_SHIFTED: dict[type[exp.Expr], str] = {exp.Lag: "lag", exp.Lead: "lead"}
SUPPORTED = "ROW_NUMBER, RANK, DENSE_RANK, count, sum, avg, min, max, first_value, last_value, lag and lead"


def is_rank(window: exp.Expr) -> bool:
    """Whether a window function numbers rows."""
    return isinstance(window, exp.Window) and type(window.this) in _RANKS


def call_of(window: exp.Window, name: str, columns: Mapping[str, InputColumn], inputs: Sequence[Input]) -> OverCall:
    """A window function, whose value is in the column ``name``.

    Raises ``UnsupportedError`` for other functions and frames, ``BindError`` for types that do not fit.
    """
    function, text, position = window.this, plain_sql(window), position_of(window)
    order = window.args.get("order")
    kind = type(function)
    if kind in (*_RANKS, *_SHIFTED) and order is None:
        raise BindError(f"{text} needs ORDER BY", position=position)
    frame = frame_of(window, text, columns, inputs)
    if kind in _RANKS:
        rank, type_ = _RANKS[kind], exp.DataType.build("BIGINT", dialect="spark")
        call = f"CAST({rank}() {{over}} AS BIGINT)"
        return OverCall(name, rank, call, (), type_, None, kind is exp.RowNumber, True, text, position)
    if kind in _AGGREGATES:
        call, arguments, type_ = _aggregate(_AGGREGATES[kind], function, text, columns)
        by_rows, aggregate = frame is not None and frame.by_rows, _AGGREGATES[kind].value
        return OverCall(name, aggregate, call, arguments, type_, frame, by_rows, True, text, position)
    if kind in _PICKED and order is not None:
        type_, picked = known_type(function.this, columns, text), _PICKED[kind]
        by_rows = frame is not None and frame.by_rows
        # a frame of RANGE is in an order with ties, the first or last of which is that by the other columns
        call = f"{picked}({{0}}{'' if by_rows else ' ORDER BY {order}'}) {{over}}"
        return OverCall(name, picked, call, (function.this,), type_, frame, by_rows, True, text, position)
    if kind in _SHIFTED:
        offset = function.args.get("offset") or exp.Literal.number(1)
        default = function.args.get("default")
        is_written = default is None or isinstance(
            default.this if isinstance(default, exp.Neg) else default, exp.Literal
        )
        if not isinstance(offset, exp.Literal) or not offset.is_int or not is_written:
            raise UnsupportedError(f"{text}: takes an expression, a whole number and a literal", position=position)
        type_, shifted, by = known_type(function.this, columns, text), _SHIFTED[kind], int(offset.name)
        otherwise = "" if default is None else f", {_literal(default, type_)}"
        call = f"{shifted}({{0}}, {by}{otherwise}) {{over}}"
        return OverCall(name, shifted, call, (function.this,), type_, None, True, True, text, position, by)
    raise UnsupportedError(f"{text} is not supported over streams", detail=f"supported: {SUPPORTED}", position=position)


def _literal(value: exp.Expr, kind: exp.DataType) -> str:
    """A literal in a call of DuckDB, in which braces stand for arguments, and then for the window."""
    sql: str = exp.cast(value.copy(), kind).sql(dialect="duckdb")
    return sql.replace("{", "{{{{").replace("}", "}}}}")


def _aggregate(
    function: Function, node: exp.Expr, text: str, columns: Mapping[str, InputColumn]
) -> tuple[str, tuple[exp.Expr, ...], exp.DataType]:
    argument = node.this
    if isinstance(argument, exp.Distinct) or node.expressions:
        raise UnsupportedError(f"{text}: DISTINCT and several arguments are not supported", position=position_of(node))
    if argument is None or isinstance(argument, exp.Star):
        return "CAST(count(*) {over} AS BIGINT)", (), exp.DataType.build("BIGINT", dialect="spark")
    kind = known_type(argument, columns, text)
    if function.takes_numbers and not kind.is_type(*NUMBERS):
        raise BindError(
            f"{text}: {plain_sql(argument)} is {kind.sql(dialect='spark')}, and {function.value} takes numbers",
            hint="CAST it, if it holds numbers",
            position=position_of(argument),
        )
    if function is Function.AVG and not kind.is_type(*INTEGERS, *FRACTIONS):
        raise UnsupportedError(
            f"{text}: means of {kind.sql(dialect='spark')} over a frame are not supported",
            hint="CAST it to DOUBLE or BIGINT",
            position=position_of(argument),
        )
    if function.keeps_type:
        return f"{function.value}({{0}}) {{over}}", (argument,), kind
    found = spark_type(Call("", function, None, arrow_type(kind)).result_type)
    type_ = exp.DataType.build(found, dialect="spark")
    return f"CAST({function.value}({{0}}) {{over}} AS {type_.sql(dialect='duckdb')})", (argument,), type_
