"""UNION, EXCEPT and INTERSECT as logical queries: each side is a query, and another one is over their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.bind.over import finished
from watersmeet.bind.rewriting import distinct, numbered, of_sides, refuse_uneven, with_mark, without_numbers
from watersmeet.bind.subqueries import Ctes
from watersmeet.bind.unions import branches, is_union_all
from watersmeet.plan.logical.query import LogicalQuery

if TYPE_CHECKING:
    from watersmeet.bind.statement import Statement


def bind_set_operation(statement: Statement, node: exp.SetOperation, ctes: Ctes, *, inner: bool) -> LogicalQuery:
    """Resolve UNION, EXCEPT or INTERSECT: a query over the results of its sides."""
    if isinstance(node, exp.Union):
        queries = [statement.query(each, ctes, inner=True) for each in branches(node)]
        found = statement.over(queries, node, inner=inner)
        return found if is_union_all(node) else distinct(found)
    sides = [statement.query(each, ctes, inner=True) for each in (node.this.unnest(), node.expression.unnest())]
    refuse_uneven(sides, type(node).__name__.upper())
    if not node.args.get("distinct"):
        plain = [each if each.is_plain else statement.over([each], node, inner=True) for each in sides]
        sides = [numbered(each) for each in plain]
    marked = [with_mark(finished(query), number) for number, query in enumerate(sides)]
    over = statement.over(marked, node, inner=inner)
    return without_numbers(of_sides(over, keeps_common=isinstance(node, exp.Intersect)))
