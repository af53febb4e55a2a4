"""ORDER BY: an event time in ascending order, then columns that break ties."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.bind.inputs import Inputs
from watersmeet.bind.scope import Scope
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.plan.logical.query import Ordering, OutputColumn
from watersmeet.plan.logical.tree import Node, timed


def bind_ordering(
    order: exp.Expr | None, node: Node, outputs: Sequence[OutputColumn], scope: Scope, names: Inputs
) -> Ordering | None:
    """Resolve ORDER BY over the results of ``node``.

    Terms may name ``outputs``. Raises ``UnsupportedError`` unless the first term is an event time in ascending order
    and the others are columns.
    """
    if order is None:
        return None
    named = {column.name.lower(): column.expression for column in outputs}
    terms = []
    for term in order.expressions:
        column = term.this
        alias = isinstance(column, exp.Column) and not column.table and named.get(column.name.lower())
        terms.append((alias or scope.substitute(column), bool(term.args.get("desc")), position_of(term)))
    first, descending, position = terms[0]
    known = names.columns.get(first.name) if isinstance(first, exp.Column) else None
    if known is None or not names.inputs[known.input].is_time(known.column) or descending:
        times = [f"{names.inputs[i].alias}.{names.inputs[i].time.column}" for i in sorted(timed(node))]
        raise UnsupportedError(
            f"ORDER BY on a stream needs an event time in rising order first, not {order.expressions[0].sql('spark')}",
            hint=f"order by {' or '.join(times)}",
            position=position,
        )
    for term in order.expressions:
        if bool(term.args.get("nulls_first")) == bool(term.args.get("desc")):
            raise UnsupportedError(
                "ORDER BY sorts NULLs first in ascending order, last in descending order",
                hint="leave out NULLS FIRST and NULLS LAST",
                position=position_of(term),
            )
    ties = tuple((expression, desc) for expression, desc, _ in terms[1:])
    for expression, _ in ties:
        if not isinstance(expression, exp.Column):
            raise UnsupportedError(
                f"ORDER BY takes columns, not {expression.sql('spark')}", position=position_of(expression)
            )
    return Ordering(known.input, ties, position)
