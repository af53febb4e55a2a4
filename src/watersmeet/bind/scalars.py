"""Scalar subqueries: (SELECT max(x) FROM b) as a value, in WHERE and in the SELECT list.

The one row of the subquery is joined with every row of the query around it; the value is a column of that join.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregated
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of

#: The relation that a scalar subquery becomes, and its column.
ALIAS, VALUE = "$scalar", "value"


def scalar_subqueries(expression: exp.Expr | None) -> Iterator[exp.Subquery]:
    """Yield the subqueries in an expression that are values, not tests and not in other subqueries.

    Raises ``UnsupportedError`` for one that need not have one row of one column.
    """
    if expression is None:
        return
    for node in expression.walk(prune=lambda each: isinstance(each, exp.Subquery | exp.Exists)):
        if isinstance(node, exp.Subquery) and not (isinstance(node.parent, exp.In) and node.arg_key == "query"):
            _check(node)
            yield node


def _check(subquery: exp.Subquery) -> None:
    query = subquery.this
    is_one_row = isinstance(query, exp.Select) and is_aggregated(query) and not query.args.get("group")
    if not is_one_row or len(query.expressions) != 1 or query.args.get("having"):
        raise UnsupportedError(
            "a subquery as a value has one column, an aggregate of all rows",
            hint="write (SELECT max(x) FROM …); for a value of each key, join a subquery with GROUP BY",
            position=position_of(query) or position_of(subquery),
        )


def value_of(number: int) -> exp.Column:
    """The column that stands for a scalar subquery."""
    return exp.column(VALUE, table=f"{ALIAS}{number}")
