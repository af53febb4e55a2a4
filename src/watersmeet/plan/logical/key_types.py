"""Types of expressions, as far as the planner needs them: join keys must have one type on both sides."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.errors import BindError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.logical.tree import InputColumn

_T = exp.DataType.Type
_INTEGERS = (_T.TINYINT, _T.SMALLINT, _T.INT, _T.BIGINT)
_FRACTIONS = (_T.FLOAT, _T.DOUBLE)
_TEXT = (_T.TEXT, _T.VARCHAR, _T.CHAR)
_TIMES = (_T.TIMESTAMP, _T.TIMESTAMPTZ, _T.TIMESTAMPLTZ)


def type_of(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> exp.DataType:
    """The Spark type of an expression over physical columns; UNKNOWN where sqlglot cannot tell."""
    if isinstance(expression, exp.Column) and expression.name in columns:
        return columns[expression.name].type
    named = expression.copy().transform(
        lambda node: (
            exp.column(exp.to_identifier(node.name, quoted=True), table="t") if isinstance(node, exp.Column) else node
        ),
        copy=False,
    )
    used = {column.name for column in named.find_all(exp.Column)}
    schema: dict[str, object] = {"t": {name: columns[name].type for name in used if name in columns}}
    select = exp.select(exp.alias_(named, "x", copy=False), copy=False).from_("t")
    annotated = annotate_types(select, schema=schema, dialect="spark")
    return annotated.selects[0].type or exp.DataType.build("UNKNOWN")


def common_key_type(left: exp.DataType, right: exp.DataType, condition: exp.Expr) -> exp.DataType:
    """The type in which Spark would compare two keys; ``BindError`` where one should be cast first."""
    for side, kind in ((condition.this, left), (condition.expression, right)):
        if kind.is_type(_T.UNKNOWN):
            raise BindError(
                f"the type of {plain_sql(side)} is not known here: keys need one type",
                hint="CAST it",
                position=position_of(condition),
            )
    if left == right:
        return left
    if left.is_type(*_TEXT) and right.is_type(*_TEXT):
        return exp.DataType.build("STRING", dialect="spark")
    if left.is_type(*_TIMES) and right.is_type(*_TIMES):
        return exp.DataType.build("TIMESTAMP", dialect="spark")
    if left.is_type(*_INTEGERS) and right.is_type(*_INTEGERS):
        return max(left, right, key=lambda kind: _INTEGERS.index(kind.this))
    numeric = (*_INTEGERS, *_FRACTIONS, _T.DECIMAL)
    if left.is_type(*numeric) and right.is_type(*numeric):
        if left.is_type(*_FRACTIONS) or right.is_type(*_FRACTIONS):
            return exp.DataType.build("DOUBLE", dialect="spark")
        return exp.DataType.build(_common_decimal(left, right), dialect="spark")
    raise BindError(
        f"{plain_sql(condition.this)} is {left.sql(dialect='spark')}, "
        f"{plain_sql(condition.expression)} is {right.sql(dialect='spark')}: keys need one type",
        hint="CAST one side",
        position=position_of(condition),
    )


def _common_decimal(left: exp.DataType, right: exp.DataType) -> str:
    """A decimal that holds both without loss (up to 38 digits)."""
    digits, scales = [], []
    for kind in (left, right):
        precision, scale = _precision(kind)
        digits.append(precision - scale)
        scales.append(scale)
    scale = max(scales)
    return f"DECIMAL({min(max(digits) + scale, 38)}, {scale})"


def _precision(kind: exp.DataType) -> tuple[int, int]:
    if kind.is_type(_T.DECIMAL):
        given = [int(part.name) for part in kind.expressions]
        return (given[0] if given else 10), (given[1] if len(given) > 1 else 0)
    return {_T.TINYINT: 3, _T.SMALLINT: 5, _T.INT: 10}.get(kind.this, 20), 0
