"""The Spark type of an expression if it is certain; otherwise the user must CAST.

Sources cast the arguments of aggregates to this type, so it must hold every value. sqlglot's own annotation does not:
it types ``DECIMAL(10, 2) * DECIMAL(10, 2)`` with ten digits, and a year with one byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from sqlglot import exp

from watersmeet.errors import BindError
from watersmeet.expressions.explodes import fields_of
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import FRACTIONS, INSTANTS, INTEGERS, NUMBERS, TEXTS, digits_of
from watersmeet.plan.logical.collection_types import collection_type, is_empty
from watersmeet.plan.logical.common_types import build_type, common_type, decimal_type
from watersmeet.plan.logical.tree import InputColumn

_T = exp.DataType.Type
TypeOf = Callable[[exp.Expr], exp.DataType | None]
_NO_PARAMETERS: Mapping[str, exp.DataType] = MappingProxyType({})
_TRUTHS = (
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ),
    *(exp.NullSafeNEQ, exp.Between, exp.In, exp.Like, exp.Boolean),
)
_PARTS_OF_TIMES = (
    *(exp.Year, exp.Quarter, exp.Month, exp.WeekOfYear, exp.DayOfYear, exp.DayOfMonth, exp.DayOfWeek, exp.Day),
    *(exp.Hour, exp.Minute, exp.Second),
)
_INSTANTS_OF_NUMBERS = ("timestamp_seconds", "timestamp_millis", "timestamp_micros")
#: Functions whose type does not depend on their operands.
_FIXED: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    (_TRUTHS, "BOOLEAN"),
    ((exp.Upper, exp.Lower, exp.Trim), "STRING"),
    ((exp.Length, exp.ArraySize, *_PARTS_OF_TIMES), "INT"),
    ((exp.Sqrt, exp.Exp, exp.Ln, exp.Pow), "DOUBLE"),
    ((exp.TsOrDsToDate, exp.LastDay), "DATE"),
)
#: Functions, the types that their first two operands must have (concat: all operands), and their own type (None: the
#: operands' common type).
_OF_OPERANDS: tuple[tuple[tuple[type[exp.Expr], ...], tuple[exp.DType, ...], str | None], ...] = (
    ((exp.Div,), (*INTEGERS, *FRACTIONS), "DOUBLE"),
    ((exp.IntDiv,), INTEGERS, "BIGINT"),
    ((exp.Mod,), (*INTEGERS, *FRACTIONS), None),
    ((exp.Floor, exp.Ceil), (*INTEGERS, *FRACTIONS), "BIGINT"),
    ((exp.Round,), (*INTEGERS, *FRACTIONS), None),
    ((exp.TimestampTrunc,), (*INSTANTS, _T.TIMESTAMPNTZ, _T.DATE), "TIMESTAMP"),
    ((exp.DateTrunc,), (*INSTANTS, _T.TIMESTAMPNTZ, _T.DATE), "DATE"),
    ((exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros, exp.StrToUnix), INSTANTS, "BIGINT"),
    ((exp.Concat, exp.DPipe), TEXTS, "STRING"),
    ((exp.Substring, exp.Replace), TEXTS, "STRING"),
)


def _once(of: Callable[[exp.Expr], exp.DataType | None]) -> Callable[[exp.Expr], exp.DataType | None]:
    """Ask a function once about each node: rules that ask twice would double the work at each level."""
    found: dict[int, exp.DataType | None] = {}

    def known(node: exp.Expr) -> exp.DataType | None:
        if id(node) not in found:
            found[id(node)] = of(node)
        return found[id(node)]

    return known


def certain_type(
    expression: exp.Expr,
    columns: Mapping[str, InputColumn],
    parameters: Mapping[str, exp.DataType] = _NO_PARAMETERS,
) -> exp.DataType | None:
    """Return the type of an expression over physical columns; None if it is not certain.

    ``parameters`` are those of the lambda functions around it, in lower case.
    """

    @_once
    def of(node: exp.Expr) -> exp.DataType | None:
        return certain_type(node, columns, parameters)

    def of_lambda(function: exp.Expr, kinds: Sequence[exp.DataType | None]) -> exp.DataType | None:
        if not isinstance(function, exp.Lambda):
            return None
        named = zip((each.name.lower() for each in function.expressions), kinds, strict=False)
        own = {name: kind for name, kind in named if kind is not None}
        return certain_type(function.this, columns, {**parameters, **own})

    match expression:
        case exp.Column():
            known = columns.get(expression.name)
            return known.type if known is not None else None
        case exp.Identifier():
            return parameters.get(expression.name.lower())
        case exp.Cast() | exp.TryCast():
            return expression.to
        case exp.Literal():
            return _literal(expression)
        case exp.Dot() | exp.Bracket():
            return _part_type(expression, of(expression.this))
        case exp.Add() | exp.Sub() | exp.Mul():
            return _arithmetic(expression, of(expression.this), of(expression.expression))
    if (fixed := _fixed(expression)) is not None:
        return build_type(fixed)
    if (branches := _branches(expression)) is not None:
        found = [branch for branch in branches if not isinstance(branch, exp.Null)]
        return common_type(of(branch) for branch in [each for each in found if not is_empty(each)] or found)
    return collection_type(expression, of, of_lambda) or _restricted(expression, of)


def known_type(
    expression: exp.Expr, columns: Mapping[str, InputColumn], what: str, near: exp.Expr | None = None
) -> exp.DataType:
    """Return the type of an expression, which is part of ``what``; ``BindError`` if it is not certain.

    The error is at the expression, or where that has no position ``near`` it.
    """
    kind = certain_type(expression, columns)
    if kind is None:
        raise type_not_known(expression, what, near)
    return kind


def type_not_known(expression: exp.Expr, what: str, near: exp.Expr | None = None) -> BindError:
    """Return the error for an expression whose type must be known, and is not."""
    return BindError(
        f"{what}: the type of {plain_sql(expression)} is not known here",
        hint="CAST it",
        position=position_of(expression) or (None if near is None else position_of(near)),
    )


def _fixed(node: exp.Expr) -> str | None:
    """Return the type that a function has whatever its operands."""
    if isinstance(node, exp.Anonymous):
        return "TIMESTAMP" if node.name.lower() in _INSTANTS_OF_NUMBERS else None
    return next((kind for nodes, kind in _FIXED if isinstance(node, nodes)), None)


def _branches(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the expressions that may be the value; None if another rule applies."""
    match node:
        case exp.Paren() | exp.Neg() | exp.Abs() | exp.Nullif():
            return [node.this]
        case exp.Case():
            found = [branch.args["true"] for branch in node.args["ifs"]]
            return found + ([node.args["default"]] if node.args.get("default") else [])
        case exp.If():
            return [node.args["true"]] + ([node.args["false"]] if node.args.get("false") else [])
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            return [node.this, *node.expressions]
    return None


def _part_type(node: exp.Expr, whole: exp.DataType | None) -> exp.DataType | None:
    """Return the type of a field of a struct, an element of an array, or a value of a map."""
    if whole is None:
        return None
    if isinstance(node, exp.Dot):
        return next((kind for name, kind in fields_of(whole) if name.lower() == node.expression.name.lower()), None)
    if whole.is_type(_T.ARRAY, _T.MAP) and whole.expressions:
        kind: exp.DataType = whole.expressions[-1]
        return kind
    return None


def _restricted(node: exp.Expr, of: TypeOf) -> exp.DataType | None:
    """Return the type of a function that is certain only for operands of some types."""
    for nodes, allowed, fixed in _OF_OPERANDS:
        if isinstance(node, nodes):
            operands = [part for part in (node.this, node.args.get("expression")) if isinstance(part, exp.Expr)]
            kinds = [of(part) for part in (operands if not isinstance(node, exp.Concat) else node.expressions)]
            if not all(kind is not None and kind.is_type(*allowed) for kind in kinds):
                return None
            return build_type(fixed) if fixed is not None else common_type(kinds)
    return None


def _arithmetic(node: exp.Expr, left: exp.DataType | None, right: exp.DataType | None) -> exp.DataType | None:
    """Return the type of a sum, difference or product; for decimals Spark's, with all digits."""
    if left is not None and left.is_type(*INSTANTS) and isinstance(node.expression, exp.Interval):
        return left
    if left is None or right is None:
        return None
    common = common_type([left, right])
    if common is None or not common.is_type(*NUMBERS):
        return None
    if not common.is_type(_T.DECIMAL):
        return common
    (p, s), (q, t) = (_written(operand, kind) for operand, kind in ((node.this, left), (node.expression, right)))
    if isinstance(node, exp.Mul):
        return decimal_type(p + q + 1, s + t)
    return decimal_type(max(p - s, q - t) + max(s, t) + 1, max(s, t))


def _written(operand: exp.Expr, kind: exp.DataType) -> tuple[int, int]:
    """Return the digits of an operand next to a decimal; an integer literal has as many as it is written with."""
    operand = operand.unnest()
    if isinstance(operand, exp.Literal) and kind.is_type(*INTEGERS):
        return len(operand.name), 0
    return digits_of(kind)


def _literal(node: exp.Literal) -> exp.DataType | None:
    if node.is_string:
        return build_type("STRING")
    text = node.name.lower()
    if "e" in text:
        return build_type("DOUBLE")
    if "." in text:
        whole, _, fraction = text.partition(".")
        return decimal_type(max(len(whole.lstrip("0")) + len(fraction), 1), len(fraction))
    if not text.isdigit():
        return None
    value = int(text)
    if value < 2**31:
        return build_type("INT")
    return build_type("BIGINT") if value < 2**63 else decimal_type(len(text), 0)
