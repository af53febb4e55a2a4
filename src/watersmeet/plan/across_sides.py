"""Conditions that read both sides of a join, as DuckDB SQL for the kernel.

Outer, semi and anti joins evaluate such conditions inside the kernel.  Only operators on which Spark and DuckDB agree
are allowed there; tests compare the two.  Spark evaluates any other condition after an inner join; elsewhere it is
refused.  Expressions over one side are computed at the source and carried as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import INTEGERS, NUMBERS
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.tree import InputColumn

_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren, exp.Is, exp.Null, exp.Boolean, exp.Case, exp.If, exp.Coalesce)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_NUMBERS = (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs, exp.Literal, exp.Greatest, exp.Least)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Neg)
_TEXT = (exp.Like, exp.Upper, exp.Lower, exp.Concat, exp.DPipe)
_ALLOWED = (*_LOGIC, *_COMPARISONS, *_NUMBERS, *_TEXT, exp.Column, exp.Identifier)
#: The allowed operators, for messages.
ALLOWED_NAMES = (
    "comparisons, AND OR NOT, IS NULL, IN, BETWEEN, CASE, COALESCE, + - *, ABS, GREATEST, LEAST, LIKE, UPPER, LOWER, "
    "CONCAT"
)


def is_allowed(condition: exp.Expr) -> bool:
    """Whether the kernel may evaluate a condition."""
    return first_refused(condition) is None


def require_allowed(condition: exp.Expr, kind: str) -> None:
    """Raise ``UnsupportedError`` at the first part of a condition that the kernel may not evaluate."""
    if (part := first_refused(condition)) is not None:
        raise UnsupportedError(
            f"{plain_sql(part)} reads both sides of a {kind} join: this function is not supported there",
            detail=f"across sides: {ALLOWED_NAMES}",
            hint=f"compute it on each side alone{'' if kind == 'inner' else ', or make the join INNER'}",
            position=position_of(part),
        )


def require_allowed_beside_subquery(condition: exp.Expr) -> None:
    """Raise ``UnsupportedError`` at the first part of what OR combines with EXISTS that the kernel may not evaluate."""
    if (part := first_refused(condition)) is not None:
        raise UnsupportedError(
            f"{plain_sql(part)} is tested on rows of several streams, by OR with EXISTS or IN: this function is not "
            "supported there",
            detail=f"across streams: {ALLOWED_NAMES}",
            hint="compute it over one stream alone, or write the joined rows into a stream first",
            position=position_of(part),
        )


def require_comparable(condition: exp.Expr, columns: Mapping[str, InputColumn]) -> None:
    """Raise ``BindError`` at a comparison of a number with a time, which no engine makes."""
    for comparison in condition.find_all(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ):
        one, other = comparison.this, comparison.expression
        kinds = [type_of(each, columns) for each in (one, other)]
        if any(a.is_type(*NUMBERS) and b.is_type(*exp.DataType.TEMPORAL_TYPES) for a, b in (kinds, kinds[::-1])):
            raise BindError(
                f"{plain_sql(one)} is {kinds[0].sql(dialect='spark')}, {plain_sql(other)} is "
                f"{kinds[1].sql(dialect='spark')}: they cannot be compared",
                hint="CAST one of them, or convert it, as timestamp_seconds() does",
                position=position_of(comparison) or position_of(one) or position_of(other),
            )


def first_refused(condition: exp.Expr) -> exp.Expr | None:
    """The first part of a condition that the kernel may not evaluate; None where it may evaluate all."""
    nodes = condition.walk(prune=_is_typed_number)
    return next((node for node in nodes if not isinstance(node, _ALLOWED) and not _is_typed_number(node)), None)


def _is_typed_number(node: exp.Expr) -> bool:
    """Whether it is a whole number with its type, such as the rank of a versioned view: CAST(1 AS BIGINT)."""
    return type(node) is exp.Cast and node.this.is_int and node.to.is_type(*INTEGERS)


#: Expressions that return NULL wherever one of their operands is NULL.
_STRICT = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Interval, exp.Var, exp.DataType, exp.Paren, exp.Tuple),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Like, exp.Not),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Abs, exp.Round, exp.Floor, exp.Ceil),
    *(exp.Cast, exp.TryCast, exp.Upper, exp.Lower, exp.Trim, exp.Length, exp.Substring, exp.Replace, exp.DPipe),
    *(exp.Year, exp.Month, exp.Day, exp.Extract, exp.DateTrunc, exp.TimestampTrunc, exp.DateAdd, exp.DateSub),
)


def is_strict(expression: exp.Expr) -> bool:
    """Whether an expression is NULL wherever its columns are, as a carried column is on a padded row."""
    return expression.find(exp.Column) is not None and is_plain(expression)


def is_plain(expression: exp.Expr) -> bool:
    """Whether an expression depends on its columns alone, and is NULL if one of them is."""
    return all(isinstance(node, _STRICT) for node in expression.walk())


def carry_one_sided(
    condition: exp.Expr,
    columns: dict[str, InputColumn],
    padded: frozenset[int],
    carry: Callable[[int, exp.Expr], str],
    *,
    external: frozenset[int] = frozenset(),
) -> exp.Expr:
    """Replace every largest part that reads a single input, and is more than a column, by a carried column.

    A carried column is NULL on rows that lack its input, so only strict expressions are carried for inputs that may be
    ``padded``.  Nothing is carried for ``external`` tables: no source computes it.  ``carry`` receives an input and an
    expression, and returns the name of the column.
    """
    tree = condition.copy()
    read = _inputs_read(tree, columns)

    def replace(node: exp.Expr) -> exp.Expr:
        used = read[id(node)]
        is_branch = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)  # WHEN … THEN …: no value by itself
        if len(used) == 1 and not is_branch and not isinstance(node, exp.Column | exp.Identifier):
            (input,) = used
            if input in external or (input in padded and not is_strict(node)):
                return node
            kind = type_of(node, columns)
            name = carry(input, node)
            columns[name] = InputColumn(name, input, "", kind)
            return exp.column(exp.to_identifier(name, quoted=True))
        return node

    return tree.transform(replace, copy=False)


def _inputs_read(tree: exp.Expr, columns: Mapping[str, InputColumn]) -> dict[int, frozenset[int]]:
    """The inputs that each part of a tree reads, by the part's ``id``: all in one pass, as there may be thousands."""
    read: dict[int, frozenset[int]] = {}
    for node in reversed(list(tree.dfs())):
        own = {columns[node.name].input} if isinstance(node, exp.Column) and node.name in columns else set()
        read[id(node)] = frozenset(own).union(*(read[id(part)] for part in node.iter_expressions()))
    return read


def render(condition: exp.Expr, column: Callable[[str], exp.Expr]) -> str:
    """DuckDB SQL of a condition, in parentheses; ``column`` maps a physical column to an expression."""
    tree = with_typed_numbers(exp.Paren(this=condition.copy())).transform(
        lambda node: column(node.name) if isinstance(node, exp.Column) else node, copy=False
    )
    for like in list(tree.find_all(exp.Like)):
        if not isinstance(like.parent, exp.Escape):
            # without ESCAPE, Spark escapes with a backslash and DuckDB does not escape
            escaped = exp.Escape(expression=exp.Literal.string("\\"))
            like.replace(escaped)
            escaped.set("this", like)
    return tree.sql(dialect="duckdb")


def with_typed_numbers(tree: exp.Expr) -> exp.Expr:
    """The tree, in which whole numbers that are calculated with have Spark's type.

    DuckDB gives a number the type of a TINYINT beside it, and so does the sum.
    """
    for number in list(tree.find_all(exp.Literal)):
        if number.is_int and isinstance(number.parent, _ARITHMETIC) and abs(int(number.name)) < 2**31:
            number.replace(exp.cast(number.copy(), "INT"))
    return tree
