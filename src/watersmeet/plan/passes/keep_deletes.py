"""Let retractions pass the filters below a join as of a time.

A filter there must not drop a change that ends another row's validity.  For a table, its conditions test the version
that holds instead; for other rows, the filter lets every -1 through.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from watersmeet.columns import TP_DELTA
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Input, Leaf, Node


def keep_deletes(query: LogicalQuery) -> LogicalQuery:
    """The query with filters on changing right sides of joins as of a time moved or widened."""
    return replace(query, root=_kept(query.root))


def _kept(node: Node) -> Node:
    if isinstance(node, Leaf):
        return node
    join = replace(node, left=_kept(node.left), right=_kept(node.right))
    if join.asof is None or not isinstance(join.right, Leaf) or not join.right.input.stream.changes:
        return join
    input = join.right.input
    if join.asof.of_table:
        return replace(join, right=Leaf(replace(input, filters=())), tests=(*input.filters, *join.tests))
    return replace(join, right=Leaf(replace(input, filters=_or_retraction(input))))


def _or_retraction(input: Input) -> tuple[exp.Expr, ...]:
    delta = exp.column(exp.to_identifier(input.physical(TP_DELTA), quoted=True))
    is_retraction = exp.LT(this=delta, expression=exp.Literal.number(0))
    return tuple(exp.or_(condition, is_retraction) for condition in input.filters)
