"""Where a condition belongs: in a filter before rows are packed, in a join, or after the last join.

WHERE tests results.  What it says of one side may be tested below the join unless the join pads that side: the padded
row must be tested too.  ON says which rows match.  What it says of one side may be tested below the join unless the
join keeps that side's rows without a partner: a row that fails must still come out.  On the right side of a join as of
a time, both test the row that was picked, and must not change which one is (FLINK-29849): they stay above.
"""

from __future__ import annotations

from sqlglot import exp

from watersmeet.kernels.api import JoinKind, Side
from watersmeet.plan.logical.query import JoinNode, Leaf, Node, PhysicalColumn, inputs_of


def place_where(node: Node, condition: exp.Expr, columns: dict[str, PhysicalColumn]) -> bool:
    """Put a condition on the results of ``node`` as deep as it may go; False where it must stay above."""
    if isinstance(node, Leaf):
        node.input.filters.append(condition)
        return True
    for side in Side:
        if node.kind.shows(side) and not node.kind.pads(side) and _place_below(node, side, condition, columns):
            return True
    if node.kind is JoinKind.INNER:
        # in a join as of a time it must not become a key, by which another row would be picked
        (node.conditions if node.asof is None else node.tests).append(condition)
        return True
    return False


def place_on(node: JoinNode, condition: exp.Expr, columns: dict[str, PhysicalColumn]) -> None:
    """Put a term of ON into a filter below, where that changes nothing else, or into the join's conditions."""
    if inputs_of(condition, columns):
        for side in Side:
            if not node.kind.keeps(side) and _place_below(node, side, condition, columns):
                return
    node.conditions.append(condition)


def _place_below(node: JoinNode, side: Side, condition: exp.Expr, columns: dict[str, PhysicalColumn]) -> bool:
    """Put a condition on one side alone into that side; False where it reads more, or must stay above."""
    if side is Side.RIGHT and node.asof is not None:
        return False
    child = node.child(side)
    return inputs_of(condition, columns) <= child.inputs and place_where(child, condition, columns)
