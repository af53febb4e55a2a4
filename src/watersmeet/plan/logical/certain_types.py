"""The Spark type of an expression where it is certain; where it is not, its author has to say it with a CAST.

What is computed for an aggregate is cast to this type at its source, so it must hold every value: sqlglot's own
annotation is of no use here (it gives ``DECIMAL(10, 2) * DECIMAL(10, 2)`` ten digits, and a year one byte).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sqlglot import exp

from watersmeet.plan.logical.tree import InputColumn

_T = exp.DataType.Type
INTEGERS = (_T.TINYINT, _T.SMALLINT, _T.INT, _T.BIGINT)
FRACTIONS = (_T.FLOAT, _T.DOUBLE)
TEXTS = (_T.TEXT, _T.VARCHAR, _T.CHAR)
INSTANTS = (_T.TIMESTAMP, _T.TIMESTAMPTZ, _T.TIMESTAMPLTZ)
_MOST_DIGITS = 38
_DIGITS = {_T.TINYINT: 3, _T.SMALLINT: 5, _T.INT: 10, _T.BIGINT: 20}

TypeOf = Callable[[exp.Expr], exp.DataType | None]
_TRUTHS = (
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ),
    *(exp.NullSafeNEQ, exp.Between, exp.In, exp.Like, exp.Boolean),
)
_PARTS_OF_TIMES = (
    *(exp.Year, exp.Quarter, exp.Month, exp.WeekOfYear, exp.DayOfYear, exp.DayOfMonth, exp.DayOfWeek, exp.Day),
    *(exp.Hour, exp.Minute, exp.Second),
)
#: Functions whose type is the same whatever they are given.
_GIVEN: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    (_TRUTHS, "BOOLEAN"),
    ((exp.Upper, exp.Lower, exp.Trim), "STRING"),
    ((exp.Length, *_PARTS_OF_TIMES), "INT"),
    ((exp.Sqrt, exp.Exp, exp.Ln, exp.Pow), "DOUBLE"),
    ((exp.TsOrDsToDate, exp.LastDay), "DATE"),
)
#: Functions with the types that all of their first two operands must have (concat: all), and their own type (None: the
#: operands' common one).
_OF_OPERANDS: tuple[tuple[tuple[type[exp.Expr], ...], tuple[exp.DType, ...], str | None], ...] = (
    ((exp.Div,), (*INTEGERS, *FRACTIONS), "DOUBLE"),
    ((exp.IntDiv,), INTEGERS, "BIGINT"),
    ((exp.Mod,), (*INTEGERS, *FRACTIONS), None),
    ((exp.Floor, exp.Ceil), (*INTEGERS, *FRACTIONS), "BIGINT"),
    ((exp.Round,), (*INTEGERS, *FRACTIONS), None),
    ((exp.TimestampTrunc,), INSTANTS, "TIMESTAMP"),
    ((exp.DateTrunc,), (_T.DATE,), "DATE"),
    ((exp.Concat, exp.DPipe), TEXTS, "STRING"),
    ((exp.Substring, exp.Replace), TEXTS, "STRING"),
)


def certain_type(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> exp.DataType | None:
    """The type of an expression over physical columns; None where it is not certain."""

    def of(node: exp.Expr) -> exp.DataType | None:
        return certain_type(node, columns)

    match expression:
        case exp.Column():
            known = columns.get(expression.name)
            return known.type if known is not None else None
        case exp.Cast() | exp.TryCast():
            return expression.to
        case exp.Literal():
            return _literal(expression)
        case exp.Add() | exp.Sub() | exp.Mul():
            return _arithmetic(expression, of(expression.this), of(expression.expression))
    if (given := next((kind for nodes, kind in _GIVEN if isinstance(expression, nodes)), None)) is not None:
        return _build(given)
    if (branches := _branches(expression)) is not None:
        return common_type(of(branch) for branch in branches if not isinstance(branch, exp.Null))
    return _restricted(expression, of)


def _branches(node: exp.Expr) -> list[exp.Expr] | None:
    """The expressions of which one is the value; None where another rule holds."""
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


def _restricted(node: exp.Expr, of: TypeOf) -> exp.DataType | None:
    """The types of what is certain for some operands only."""
    for nodes, allowed, given in _OF_OPERANDS:
        if isinstance(node, nodes):
            operands = [part for part in (node.this, node.args.get("expression")) if isinstance(part, exp.Expr)]
            kinds = [of(part) for part in (operands if not isinstance(node, exp.Concat) else node.expressions)]
            if not all(kind is not None and kind.is_type(*allowed) for kind in kinds):
                return None
            return _build(given) if given is not None else common_type(kinds)
    return None


def common_type(kinds: Iterable[exp.DataType | None]) -> exp.DataType | None:
    """A type that holds every value of all ``kinds``; None where one is not certain, or they have nothing in common."""
    found = list(kinds)
    known = [kind for kind in found if kind is not None]
    if not known or len(known) < len(found):
        return None
    if all(kind == known[0] for kind in known):
        return known[0]
    if all(kind.is_type(*TEXTS) for kind in known):
        return _build("STRING")
    if all(kind.is_type(*INTEGERS) for kind in known):
        return max(known, key=lambda kind: INTEGERS.index(kind.this))
    if not all(kind.is_type(*INTEGERS, *FRACTIONS, _T.DECIMAL) for kind in known):
        return None
    if any(kind.is_type(*FRACTIONS) for kind in known):
        return _build("DOUBLE")
    digits = [precision_of(kind) for kind in known]
    scale = max(scale for _, scale in digits)
    return _decimal(max(precision - scale for precision, scale in digits) + scale, scale)


def precision_of(kind: exp.DataType) -> tuple[int, int]:
    """The digits of an exact number, and how many of them stand after the point."""
    if kind.is_type(_T.DECIMAL):
        given = [int(part.name) for part in kind.expressions]
        return (given[0] if given else 10), (given[1] if len(given) > 1 else 0)
    return _DIGITS[kind.this], 0


def _arithmetic(node: exp.Expr, left: exp.DataType | None, right: exp.DataType | None) -> exp.DataType | None:
    """The type of a sum, difference or product; of decimals as Spark has it, with all their digits."""
    if left is not None and left.is_type(*INSTANTS) and isinstance(node.expression, exp.Interval):
        return left
    if left is None or right is None:
        return None
    common = common_type([left, right])
    if common is None or not common.is_type(*INTEGERS, *FRACTIONS, _T.DECIMAL):
        return None
    if not common.is_type(_T.DECIMAL):
        return common
    (p, s), (q, t) = (_written(operand, kind) for operand, kind in ((node.this, left), (node.expression, right)))
    if isinstance(node, exp.Mul):
        return _decimal(p + q + 1, s + t)
    return _decimal(max(p - s, q - t) + max(s, t) + 1, max(s, t))


def _written(operand: exp.Expr, kind: exp.DataType) -> tuple[int, int]:
    """The digits of an operand beside a decimal: a number that is written out has as many as it shows."""
    operand = operand.unnest()
    if isinstance(operand, exp.Literal) and kind.is_type(*INTEGERS):
        return len(operand.name), 0
    return precision_of(kind)


def _literal(node: exp.Literal) -> exp.DataType | None:
    if node.is_string:
        return _build("STRING")
    text = node.name.lower()
    if "e" in text:
        return _build("DOUBLE")
    if "." in text:
        whole, _, fraction = text.partition(".")
        return _decimal(max(len(whole.lstrip("0")) + len(fraction), 1), len(fraction))
    if not text.isdigit():
        return None
    value = int(text)
    if value < 2**31:
        return _build("INT")
    return _build("BIGINT") if value < 2**63 else _decimal(len(text), 0)


def _decimal(precision: int, scale: int) -> exp.DataType | None:
    return _build(f"DECIMAL({precision}, {scale})") if precision <= _MOST_DIGITS else None


def _build(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect="spark")
