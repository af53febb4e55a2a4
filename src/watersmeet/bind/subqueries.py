"""Subqueries: common table expressions, EXISTS and IN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of

#: The common table expressions in scope, by lower-case name.
Ctes = Mapping[str, exp.Select]


@dataclass(frozen=True, slots=True)
class SubqueryTest:
    """[NOT] EXISTS (select), or ``operand`` [NOT] IN (select)."""

    negated: bool
    operand: exp.Expr | None
    select: exp.Select


def subquery_test(term: exp.Expr) -> SubqueryTest | None:
    """Return a term as a test of a subquery; None for any other term."""
    negated = False
    while isinstance(term, exp.Not | exp.Paren):
        negated ^= isinstance(term, exp.Not)
        term = term.this
    if isinstance(term, exp.Exists) and isinstance(term.this, exp.Select):
        return SubqueryTest(negated, None, term.this)
    if isinstance(term, exp.In) and term.args.get("query") is not None:
        inner = term.args["query"].unnest()
        if isinstance(inner, exp.Select):
            return SubqueryTest(negated, term.this, inner)
    return None


def ctes_of(select: exp.Select) -> dict[str, exp.Select]:
    """Return the common table expressions that a select defines."""
    clause = select.args.get("with_") or select.args.get("with")
    return {cte.alias.lower(): cte.this for cte in clause.expressions} if clause else {}


def refuse_inner_order(select: exp.Select) -> None:
    """Raise ``UnsupportedError`` for ORDER BY in a subquery."""
    order = select.args.get("order")
    if order is not None:
        raise UnsupportedError(
            "ORDER BY in a subquery has no effect",
            hint="order the outermost query",
            position=position_of(order.expressions[0]),
        )
