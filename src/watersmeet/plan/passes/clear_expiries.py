"""Clear the expiries of joins whose inputs may take rows back.

In a changelog, an outer or anti join retracts results, and so does a join as of a time.  A join over such results keeps
rows by their keys and times (kernels/changelog), not by expiries, so that a retraction finds its row.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.kernels.api import EmitMode
from watersmeet.plan.emission import decide_emission
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Leaf, Node, joins_of


def clear_expiries(query: LogicalQuery) -> LogicalQuery:
    """The query without expiries of joins over results that may be retracted.

    Raises what ``decide_emission`` raises.
    """
    if decide_emission(query).mode is EmitMode.FINAL:
        return query
    return replace(query, root=_cleared(query.root))


def _cleared(node: Node) -> Node:
    if isinstance(node, Leaf):
        return node
    node = replace(node, left=_cleared(node.left), right=_cleared(node.right))
    below = (join for child in (node.left, node.right) for join in joins_of(child))
    if not any(join.kind.retracts or join.asof is not None for join in below):
        return node
    return replace(node, condition=replace(node.condition, expiries=((), ())))
