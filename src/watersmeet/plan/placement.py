"""Where a condition belongs: in a filter before rows are packed, in a join, or after the last join.

A filter may go below a join only on a side whose rows the join does not keep unmatched.  The condition on the padded
side of an outer join in WHERE sees the padded row, so it stays above.
"""

from __future__ import annotations

from sqlglot import exp

from watersmeet.kernels.api import JoinKind
from watersmeet.plan.logical import JoinNode, Leaf, Node, PhysicalColumn, inputs_of

_LEFT_IN_WHERE = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
_RIGHT_IN_WHERE = (JoinKind.INNER, JoinKind.RIGHT)
_LEFT_IN_ON = (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI)
_RIGHT_IN_ON = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)


def place_where(node: Node, condition: exp.Expr, columns: dict[str, PhysicalColumn]) -> bool:
    """Put a condition on the results of ``node`` as deep as it may go; False where it must stay above."""
    used = inputs_of(condition, columns)
    if isinstance(node, Leaf):
        node.input.filters.append(condition)
        return True
    if used <= node.left.inputs and node.kind in _LEFT_IN_WHERE and place_where(node.left, condition, columns):
        return True
    if used <= node.right.inputs and node.kind in _RIGHT_IN_WHERE and place_where(node.right, condition, columns):
        return True
    if node.kind is JoinKind.INNER:
        node.conditions.append(condition)
        return True
    return False


def place_on(node: JoinNode, condition: exp.Expr, columns: dict[str, PhysicalColumn]) -> None:
    """Put a term of ON into a filter below, where that changes nothing else, or into the join's conditions."""
    used = inputs_of(condition, columns)
    if used and used <= node.left.inputs and node.kind in _LEFT_IN_ON and place_where(node.left, condition, columns):
        return
    if used and used <= node.right.inputs and node.kind in _RIGHT_IN_ON and place_where(node.right, condition, columns):
        return
    node.conditions.append(condition)
