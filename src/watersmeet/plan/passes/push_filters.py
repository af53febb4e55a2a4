"""Move each condition as far down the tree as it may go.

WHERE tests results.  A condition over one side may be tested below the join unless the join pads that side: the padded
row must be tested too.  ON says which rows match.  A term over one side may be tested below the join unless the join
keeps that side's rows without a partner: a row that fails the term must still be emitted.  On the right side of a join
as of a time, both test the row that was picked and must not change which one that is (FLINK-29849): they stay above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlglot import exp

from watersmeet.columns import TP_DELTA
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.api import JoinKind, Side
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import InputColumn, Join, Leaf, Node

Columns = Mapping[str, InputColumn]


def push_filters(query: LogicalQuery) -> LogicalQuery:
    """The query with every condition of WHERE and ON as deep in the tree as it may go.

    Raises ``UnsupportedError`` for a condition of a subquery's WHERE that would have to stay above the subquery.
    """
    root = _pushed(query.root, query.columns)
    if query.aggregation is not None:
        root, left = _place_all(root, query.aggregation.conditions, query.columns)
        return replace(query, root=root, aggregation=replace(query.aggregation, conditions=left))
    if query.over is not None:
        root, left = _place_all(root, query.over.conditions, query.columns)
        return replace(query, root=root, over=replace(query.over, conditions=left))
    if query.sessions is not None:
        return replace(query, root=root)
    root, left = _place_all(root, query.filters, query.columns)
    return replace(query, root=root, filters=left)


def reads_delta(condition: exp.Expr) -> bool:
    """Whether a condition tests a change of the result (``_tp_delta``) rather than a row."""
    return any(column.name == TP_DELTA for column in condition.find_all(exp.Column))


def goes_down(node: Node, condition: exp.Expr, columns: Columns) -> bool:
    """Whether a condition on the results of a tree can be placed in it."""
    return _placed(node, condition, columns) is not None


def _pushed(node: Node, columns: Columns) -> Node:
    """The tree with the ON of each join, and the WHERE of each subquery, pushed down."""
    if isinstance(node, Leaf):
        return node
    terms = node.condition.residual
    join = replace(
        node,
        left=_pushed(node.left, columns),
        right=_pushed(node.right, columns),
        condition=replace(node.condition, residual=()),
        where=(),
    )
    for term in terms:
        join = _with_on(join, term, columns)
    found, left = _place_all(join, node.where, columns)
    if left:
        raise UnsupportedError(
            "here, WHERE in a subquery cannot test the padded side of an outer join, nor _tp_delta",
            hint="move the condition into the WHERE of the outermost query",
            position=position_of(left[0]),
        )
    return found


def _with_on(join: Join, term: exp.Expr, columns: Columns) -> Join:
    """The join with a term of ON, as a filter below where that changes nothing else."""
    if inputs_of(term, columns) and not join.null_aware:
        for side in Side:
            if not join.keeps(side) and (child := _placed_below(join, side, term, columns)) is not None:
                return _with_child(join, side, child)
    return replace(join, condition=replace(join.condition, residual=(*join.condition.residual, term)))


def _place_all(node: Node, conditions: Iterable[exp.Expr], columns: Columns) -> tuple[Node, tuple[exp.Expr, ...]]:
    """The tree with conditions on its results placed in it, and those that must stay above."""
    above = []
    for condition in conditions:
        placed = None if reads_delta(condition) else _placed(node, condition, columns)
        if placed is None:
            above.append(condition)
        else:
            node = placed
    return node, tuple(above)


def _placed(node: Node, condition: exp.Expr, columns: Columns) -> Node | None:
    """The tree with a condition on its results placed in it; None where it must stay above."""
    if isinstance(node, Leaf):
        return Leaf(replace(node.input, filters=(*node.input.filters, condition)))
    for side in Side:
        may_go = node.kind.outputs(side) and not node.kind.pads(side)
        if may_go and (child := _placed_below(node, side, condition, columns)) is not None:
            return _with_child(node, side, child)
    if node.kind is not JoinKind.INNER:
        return None
    if node.asof is not None:  # as a key it would change which row is picked
        return replace(node, tests=(*node.tests, condition))
    return replace(node, condition=replace(node.condition, residual=(*node.condition.residual, condition)))


def _placed_below(join: Join, side: Side, condition: exp.Expr, columns: Columns) -> Node | None:
    """One side with a condition on it alone; None where the condition reads more, or must stay above."""
    if side is Side.RIGHT and join.asof is not None:
        return None
    child = join.child(side)
    return _placed(child, condition, columns) if inputs_of(condition, columns) <= child.inputs else None


def _with_child(join: Join, side: Side, child: Node) -> Join:
    return replace(join, left=child) if side is Side.LEFT else replace(join, right=child)
