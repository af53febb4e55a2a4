"""Derive windows from the conditions of a whole group of joins.

In ``a JOIN b ON … JOIN c ON … AND c.ts BETWEEN a.ts AND a.ts + 10 AND c.ts BETWEEN b.ts AND b.ts + 10`` no condition
compares a with b, but every result has both within 10 of each other: a and b that are further apart meet in no c, so
the first join need not keep them.

A group is a maximal subtree of inner and semi joins.  Every result of it meets the conditions of all its joins, so
their bounds may be combined over all inputs, and each join may drop what the others would.  What an outer or an anti
join says of its rows never reaches a join below it: it emits rows that fail its condition.  Joins as of a time pick one
row, and a smaller input might change which; joins of changing streams have no window.

Times are combined only of inputs that no result lacks: those that no join below the group pads, and those that a
condition of the group compares, since a comparison with NULL is never true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.api import JoinKind
from watersmeet.plan.logical.conditions import in_event_times, time_columns
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Bound, Differences, time_bounds
from watersmeet.plan.logical.tree import Join, Leaf, Node, changing, nullable


def close_windows(query: LogicalQuery) -> LogicalQuery:
    """The query with the bounds in each join's condition that follow from its whole group."""
    return replace(query, root=_Closing(query).node(query.root, None))


def _in_group(node: Node) -> bool:
    """Whether a node is a join whose results all meet its condition."""
    if isinstance(node, Leaf) or node.kind not in (JoinKind.INNER, JoinKind.SEMI):
        return False
    return node.asof is None and not node.lets_pass and not changing(node)


def _members(node: Node) -> Iterator[Node]:
    """The joins of a group below and with its top, and the subtrees that they join."""
    yield node
    if _in_group(node):
        assert isinstance(node, Join)
        yield from _members(node.left)
        yield from _members(node.right)


@dataclass(frozen=True, slots=True)
class _Closing:
    query: LogicalQuery

    def node(self, node: Node, group: Differences | None) -> Node:
        """The tree with derived bounds; ``group`` are those of the group that the join above is in."""
        if isinstance(node, Leaf):
            return node
        if not _in_group(node):
            return replace(node, left=self.node(node.left, None), right=self.node(node.right, None))
        known = self._known(node) if group is None else group
        implied = tuple(
            (i, j, interval)
            for (i, j), interval in known.known.items()
            if i in node.left.visible and j in node.right.visible
        )
        left, right = self.node(node.left, known), self.node(node.right, known)
        return replace(node, left=left, right=right, condition=replace(node.condition, implied=implied))

    def _known(self, top: Node) -> Differences:
        """The bounds of a group, combined; none where they contradict each other, which the join itself reports."""
        members = list(_members(top))
        joins = [node for node in members if isinstance(node, Join) and _in_group(node)]
        compared = [bound for join in joins for bound in self._compared(join)]
        certain = {i for node in members if not _in_group(node) for i in node.visible - nullable(node)}
        certain |= {i for pair in compared for i in pair[:2]}
        near = [bound for join in joins for bound in join.condition.loose if {*bound[:2]} <= certain]
        known = Differences()
        for i, j, interval in (*compared, *near):
            known.add(i, j, interval)
        known.close()
        return Differences() if any(each.is_empty for each in known.known.values()) else known

    def _compared(self, join: Join) -> Iterator[Bound]:
        """The bounds in a join's conditions, between times of one kind."""
        inputs = self.query.inputs
        for condition in join.condition.residual:
            found = time_bounds(
                in_event_times(condition, inputs, self.query.columns), time_columns(inputs, self.query.columns)
            )
            if found is None or any(inputs[i].stream.outside for i in found[0]):
                continue
            (i, j), interval = found
            if (inputs[i].time.unit is TimeUnit.ROWS) == (inputs[j].time.unit is TimeUnit.ROWS):
                yield i, j, interval
