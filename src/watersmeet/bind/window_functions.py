"""One window function: its call in DuckDB, its type, and its frame."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.type_groups import FRACTIONS, INTEGERS, NUMBERS
from watersmeet.expressions.type_names import spark_type
from watersmeet.kernels.aggregate.functions import Call, Function
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.query import OverCall
from watersmeet.plan.logical.tree import InputColumn

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


def call_of(window: exp.Window, name: str, columns: Mapping[str, InputColumn]) -> OverCall:
    """A window function, whose value is in the column ``name``.

    Raises ``UnsupportedError`` for other functions and frames, ``BindError`` for types that do not fit.
    """
    function, text, position = window.this, plain_sql(window), position_of(window)
    order = window.args.get("order")
    kind = type(function)
    if kind in (*_RANKS, *_SHIFTED) and order is None:
        raise BindError(f"{text} needs ORDER BY", position=position)
    frame, by_rows = _frame(window, text)
    arguments: tuple[exp.Expr, ...] = ()
    if kind in _RANKS:
        call, type_ = f"CAST({_RANKS[kind]}() {{over}} AS BIGINT)", exp.DataType.build("BIGINT", dialect="spark")
        return OverCall(name, call, (), type_, "", kind is exp.RowNumber, True, text, position)
    if kind in _AGGREGATES:
        call, arguments, type_ = _aggregate(_AGGREGATES[kind], function, text, columns)
        return OverCall(name, call, arguments, type_, frame, by_rows, True, text, position)
    if kind in _PICKED and order is not None:
        type_ = _type(function.this, text, columns)
        return OverCall(
            name, f"{_PICKED[kind]}({{0}}) {{over}}", (function.this,), type_, frame, True, True, text, position
        )
    if kind in _SHIFTED:
        offset = function.args.get("offset") or exp.Literal.number(1)
        if not isinstance(offset, exp.Literal) or not offset.is_int or function.args.get("default") is not None:
            raise UnsupportedError(
                f"{text}: takes an expression and a whole number", hint="for a default use coalesce", position=position
            )
        type_, call = _type(function.this, text, columns), f"{_SHIFTED[kind]}({{0}}, {int(offset.name)}) {{over}}"
        return OverCall(name, call, (function.this,), type_, "", True, True, text, position)
    raise UnsupportedError(f"{text} is not supported over streams", detail=f"supported: {SUPPORTED}", position=position)


def _aggregate(
    function: Function, node: exp.Expr, text: str, columns: Mapping[str, InputColumn]
) -> tuple[str, tuple[exp.Expr, ...], exp.DataType]:
    argument = node.this
    if isinstance(argument, exp.Distinct) or node.expressions:
        raise UnsupportedError(f"{text}: DISTINCT and several arguments are not supported", position=position_of(node))
    if argument is None or isinstance(argument, exp.Star):
        return "CAST(count(*) {over} AS BIGINT)", (), exp.DataType.build("BIGINT", dialect="spark")
    kind = _type(argument, text, columns)
    if function.takes_numbers and not kind.is_type(*NUMBERS):
        raise BindError(
            f"{text}: {plain_sql(argument)} is {kind.sql(dialect='spark')}, and {function.value} takes numbers",
            hint="CAST it, if it holds numbers",
            position=position_of(argument),
        )
    if function.adds and not kind.is_type(*INTEGERS, *FRACTIONS):
        raise UnsupportedError(
            f"{text}: sums of {kind.sql(dialect='spark')} over a frame are not supported",
            hint="CAST it to DOUBLE or BIGINT",
            position=position_of(argument),
        )
    if function.keeps_type:
        return f"{function.value}({{0}}) {{over}}", (argument,), kind
    found = spark_type(Call("", function, None, arrow_type(kind)).result_type)
    type_ = exp.DataType.build(found, dialect="spark")
    return f"CAST({function.value}({{0}}) {{over}} AS {type_.sql(dialect='duckdb')})", (argument,), type_


def _type(argument: exp.Expr, text: str, columns: Mapping[str, InputColumn]) -> exp.DataType:
    kind = certain_type(argument, columns)
    if kind is None:
        raise BindError(
            f"{text}: the type of {plain_sql(argument)} is not known here",
            hint="CAST it",
            position=position_of(argument),
        )
    return kind


def _frame(window: exp.Window, text: str) -> tuple[str, bool]:
    """The frame in DuckDB's SQL, and whether it counts rows."""
    spec = window.args.get("spec")
    if spec is None:
        return "", False
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise UnsupportedError(f"{text}: a frame is of ROWS or RANGE, without EXCLUDE", position=position_of(window))
    start = _edge(spec.args.get("start"), spec.args.get("start_side"), text)
    end = _edge(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), text)
    return f"{kind} BETWEEN {start} AND {end}", kind == "ROWS"


def _edge(value: object, side: object, text: str) -> str:
    direction = f" {str(side).upper()}" if side else ""
    if isinstance(value, str):
        return f"{value.upper()}{direction}"
    if isinstance(value, exp.Interval):
        return f"INTERVAL {interval_micros(value)} MICROSECONDS{direction}"
    if isinstance(value, exp.Literal) and value.is_int:
        return f"{int(value.name)}{direction}"
    raise UnsupportedError(
        f"{text}: the edge of a frame is a whole number, an INTERVAL, UNBOUNDED or CURRENT ROW",
        position=position_of(value) if isinstance(value, exp.Expr) else None,
    )
