"""Types of join keys, which must have one type on both sides."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from watersmeet.errors import BindError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import INSTANTS, INTEGERS, MAX_DIGITS
from watersmeet.plan.logical.common_types import common_digits, common_type
from watersmeet.plan.logical.tree import InputColumn

_T = exp.DataType.Type
_EXACT = (*INTEGERS, _T.DECIMAL)


def type_of(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> exp.DataType:
    """Return the Spark type of an expression over physical columns; UNKNOWN if sqlglot cannot derive it."""
    if isinstance(expression, exp.Column) and expression.name in columns:
        return columns[expression.name].type
    named = expression.copy().transform(
        lambda node: (
            exp.column(exp.to_identifier(node.name, quoted=True), table="t") if isinstance(node, exp.Column) else node
        ),
        copy=False,
    )
    used = {column.name for column in named.find_all(exp.Column)}
    known = {name: columns[name].type for name in used if name in columns}
    schema: dict[str, object] = {"t": known} if known else {}  # a table without columns is refused
    select = exp.select(exp.alias_(named, "x", copy=False), copy=False).from_("t")
    annotated = annotate_types(select, schema=schema, dialect="spark")
    return annotated.selects[0].type or exp.DataType.build("UNKNOWN")


def common_key_type(left: exp.DataType, right: exp.DataType, condition: exp.Expr) -> exp.DataType:
    """Return the type in which Spark would compare two keys; ``BindError`` if one must be cast first."""
    for side, kind in ((condition.this, left), (condition.expression, right)):
        if kind.is_type(_T.UNKNOWN):
            raise BindError(
                f"the type of {plain_sql(side)} is not known here: keys need one type",
                hint="CAST it",
                position=position_of(condition),
            )
    if (common := common_type((left, right))) is not None:
        return common
    if left.is_type(*INSTANTS) and right.is_type(*INSTANTS):
        return exp.DataType.build("TIMESTAMP", dialect="spark")
    if left.is_type(*_EXACT) and right.is_type(*_EXACT):  # more digits than a decimal can have
        _, scale = common_digits((left, right))
        return exp.DataType.build(f"DECIMAL({MAX_DIGITS}, {scale})", dialect="spark")
    raise BindError(
        f"{plain_sql(condition.this)} is {left.sql(dialect='spark')}, "
        f"{plain_sql(condition.expression)} is {right.sql(dialect='spark')}: keys need one type",
        hint="CAST one side",
        position=position_of(condition),
    )
