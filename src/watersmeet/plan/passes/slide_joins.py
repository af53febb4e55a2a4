"""Choose the sliding join (kernels/sliding.py) where results come in an order, as ``join_algorithm`` says.

    'auto'       the last join, if ORDER BY names the time of a side that has a row in every result: that side probes
    'sliding'    every join that can slide; of a semi or anti join the side that has results probes, of others the right
                 one, unless ORDER BY names the left side's time
    'symmetric'  no join

A join can slide if its results are final, a window bounds both sides, and its inputs only append.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import PlanError
from watersmeet.kernels.api import EmitMode, Side
from watersmeet.plan.emission import decide_emission
from watersmeet.plan.logical.lags import latest_lag
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Join, Leaf, Node, changing, joins_of


def slide_joins(query: LogicalQuery) -> LogicalQuery:
    """The query with the probe sides of its sliding joins.

    Raises ``PlanError`` if ``join_algorithm`` is 'sliding' and no join can slide, and what ``decide_emission`` raises.
    """
    wanted = query.settings.join_algorithm
    if wanted == "symmetric" or query.settings.limits_joins:
        return query
    is_final = decide_emission(query).mode is EmitMode.FINAL
    if wanted == "auto":
        return replace(query, root=_ordered(query.root, query)) if is_final else query
    slid = _all_sliding(query.root, query) if is_final else query.root
    if all(join.probe is None for join in joins_of(slid)):
        raise PlanError(
            "join_algorithm = 'sliding', but no join of this query can slide",
            detail=None if is_final else "results are a changelog here, which is in no order",
            hint="a sliding join needs a window that bounds both sides, final results, and streams whose rows do not "
            "change, and is not one of several that run in one operator (multi_join = 'off')",
            position=query.text.settings_positions.get("join_algorithm", query.text.position),
        )
    return replace(query, root=slid)


def can_slide(join: Join) -> bool:
    """Whether the results of a join can come in the order of one of its sides."""
    is_windowed = join.asof is None and join.group is None and join.condition.bounds.is_bounded
    if not is_windowed or join.lets_pass or join.mark is not None or changing(join):
        return False
    leaders = join.condition.leaders
    return all(len(leaders[side.index]) == 1 and _arrives(join, side) for side in Side)


def _arrives(join: Join, side: Side) -> bool:
    """Whether a frontier says when the rows of a side are complete."""
    return latest_lag(join.child(side), join.condition.leaders[side.index]) is not None


def is_in_order(query: LogicalQuery) -> bool:
    """Whether the last join gives all results in the order of ORDER BY, since all its rows are in one bucket."""
    root = query.root
    if isinstance(root, Leaf) or root.probe is None or query.settings.buckets != 1:
        return False
    return root.probe is _ordered_side(root, query) and _keeps_order(root, root.probe)


def _ordered_side(join: Join, query: LogicalQuery) -> Side | None:
    """The side by whose leading time ORDER BY orders the results of a join; None if there is none."""
    if query.ordering is None or join is not query.root:
        return None
    leading = (side for side in Side if join.condition.leaders[side.index] == (query.ordering.input,))
    return next(leading, None)


def _keeps_order(join: Join, probe: Side) -> bool:
    """Whether every result has a row of the probe side, and is emitted with it."""
    return join.kind.outputs(probe) and not join.kind.emits_unmatched(probe.other)


def _ordered(root: Node, query: LogicalQuery) -> Node:
    """The last join with the side that ORDER BY names as its probe side, if its results then come in order."""
    if isinstance(root, Leaf):
        return root
    side = _ordered_side(root, query)
    return root if side is None or not can_slide(root) or not _keeps_order(root, side) else _sliding(root, side)


def _all_sliding(node: Node, query: LogicalQuery) -> Node:
    if isinstance(node, Leaf) or node.group is not None:
        return node
    side = _ordered_side(node, query) or (Side.RIGHT if node.kind.pairs else Side.LEFT)
    node = replace(node, left=_all_sliding(node.left, query), right=_all_sliding(node.right, query))
    return _sliding(node, side) if can_slide(node) else node


def _sliding(join: Join, probe: Side) -> Join:
    """The join with a probe side: its frontier is that of the probe rows that have been answered."""
    lags = dict(join.condition.lags)
    if isinstance(leaf := join.child(probe), Leaf):
        lags[leaf.input.index] = 0
    return replace(join, probe=probe, condition=replace(join.condition, lags=lags))
