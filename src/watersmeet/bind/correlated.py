"""Scalar subqueries that equalities tie to the query around them, as a query with a row for each value of these.

(SELECT max(x) FROM b WHERE b.k = a.k AND b.y > 0)
a row of:  SELECT b.k AS $k0, max(x) AS value FROM b WHERE b.y > 0 GROUP BY b.k      where a.k = $k0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregate, unwrap_call
from watersmeet.bind.scalars import VALUE
from watersmeet.bind.scope import Scope
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.logical.conditions import conjuncts

#: Functions that are 0 of no rows, and those that are an empty list; all others are NULL.
_COUNTS = (exp.Count, exp.CountIf, exp.ApproxDistinct)
_LISTS = (exp.ArrayAgg, exp.ArrayUniqueAgg)


@dataclass(frozen=True, slots=True)
class Correlated:
    """The ``select`` with GROUP BY, whose columns are keys and the value.

    ``wanted`` are the expressions of the query around it that the keys equal, and ``empty`` is the value where there
    are no rows.
    """

    select: exp.Select
    wanted: tuple[exp.Expr, ...]
    empty: exp.Expr


def key_of(number: int) -> str:
    """The name of a key of the grouped query."""
    return f"$k{number}"


def correlated(select: exp.Select, inner: Scope, outer: Scope) -> Correlated | None:
    """A scalar subquery that reads columns of the query around it; None if it reads none.

    ``inner`` is the scope of its FROM.  Raises ``UnsupportedError`` where it reads them otherwise than in equalities.
    """
    where = select.args.get("where")
    terms = list(conjuncts(where.this if where else None))
    outside = [column for each in _own_parts(select) for column in _outer(each, inner, outer)]
    if outside:
        raise _no_equality(outside[0], outside[0])
    tied = [term for term in terms if any(True for _ in _outer(term, inner, outer))]
    if not tied:
        return None
    pairs = [_pair(term, inner, outer) for term in tied]
    grouped = select.copy()
    kept = [term.copy() for term in terms if term not in tied]
    grouped.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
    grouped.set("group", exp.Group(expressions=[own.copy() for own, _ in pairs]))
    value = select.expressions[0].unalias()
    items = [exp.alias_(own.copy(), key_of(number), quoted=True) for number, (own, _) in enumerate(pairs)]
    grouped.set("expressions", [*items, exp.alias_(value.copy(), VALUE)])
    return Correlated(grouped, tuple(wanted for _, wanted in pairs), _of_no_rows(value))


def _own_parts(select: exp.Select) -> Iterator[exp.Expr]:
    """The parts of a select beside WHERE and what is below it in FROM."""
    yield from select.expressions
    for join in select.args.get("joins") or ():
        if (on := join.args.get("on")) is not None:
            yield on


def _outer(expression: exp.Expr, inner: Scope, outer: Scope) -> Iterator[exp.Column]:
    """The columns that are those of the query around a subquery; ``BindError`` for others that it does not have."""
    for node in expression.walk(prune=lambda each: isinstance(each, exp.Query)):
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) and not inner.has(node):
            if outer.has(node):
                yield node
            elif outer.relation(node.table) is not None and inner.relation(node.table) is None:
                outer.resolve(node)


def _pair(term: exp.Expr, inner: Scope, outer: Scope) -> tuple[exp.Expr, exp.Expr]:
    """The sides of an equality: that of the subquery, that of the query around it."""
    if isinstance(term.unnest(), exp.EQ):
        sides = (term.unnest().this, term.unnest().expression)
        for own, wanted in (sides, sides[::-1]):
            columns = list(wanted.find_all(exp.Column))
            around = len(list(_outer(wanted, inner, outer)))
            is_own = own.find(exp.Column) is not None and not any(True for _ in _outer(own, inner, outer))
            if is_own and columns and around == len(columns):
                return own, wanted
    raise _no_equality(term, next(_outer(term, inner, outer)))


def _no_equality(term: exp.Expr, column: exp.Expr) -> UnsupportedError:
    return UnsupportedError(
        f"a subquery as a value reads {plain_sql(column)} of the query around it in {plain_sql(term)}",
        detail="such columns may stand in its WHERE, in equalities with its own columns: … WHERE b.k = a.k",
        hint="join a subquery with GROUP BY",
        position=position_of(term),
    )


def _of_no_rows(value: exp.Expr) -> exp.Expr:
    """The value where no row is aggregated: counts are 0, lists are empty, other functions NULL."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not is_aggregate(node):
            return node
        call = unwrap_call(node)[0]
        if isinstance(call, _LISTS):
            return exp.Array(expressions=[])
        return exp.Literal.number(0) if isinstance(call, _COUNTS) else exp.Null()

    found: exp.Expr = value.copy().transform(replaced, copy=False)
    return found
