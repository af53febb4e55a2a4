"""Order inner joins so that each has a key.

``FROM a, c, b WHERE a.k = b.k AND b.j = c.j`` would first pair every a with every c, in one bucket.  Joined as a, b, c,
both joins have a key.

A group is a maximal subtree of inner joins; what it joins are inputs and subtrees of other kinds, which stay whole.  A
group is ordered anew only if fewer of its joins then lack a key: the first input of the text comes first, then always
the first that has a key with those before it, or else the first that is left.

An inner join's results do not depend on the order, nor does a window: WITHIN is bounds between pairs of inputs by now
(apply_clauses.py).  But a WITHIN or a grace that belongs to one join alone keeps the group as it is written, and so do
external tables, of which a key may be looked up and another only tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from watersmeet.errors import Position
from watersmeet.kernels.api import JoinKind
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Bound
from watersmeet.plan.logical.tree import Join, JoinCondition, Leaf, Node, joins_of, leaves_of
from watersmeet.plan.passes.condition_terms import split_conditions


def order_joins(query: LogicalQuery) -> LogicalQuery:
    """The query with its inner joins in an order in which as few as possible lack a key."""
    windowed = [join for join in joins_of(query.root) if join.asof is None and not join.from_subquery]
    return replace(query, root=_Ordering(query, windowed[-1] if windowed else None).node(query.root))


@dataclass(slots=True)
class _Group:
    """The inner joins of a group, and the subtrees that they join with the place of each in the text."""

    joins: list[Join] = field(default_factory=list)
    parts: list[tuple[Node, Position | None]] = field(default_factory=list)


def _group(node: Node, position: Position | None = None) -> _Group:
    """The group below a node; ``position`` is that of the join whose right side begins here."""
    if not _in_group(node):
        return _Group(parts=[(node, position)])
    assert isinstance(node, Join)
    left, right = _group(node.left, position), _group(node.right, node.position)
    return _Group([*left.joins, *right.joins, node], [*left.parts, *right.parts])


def _in_group(node: Node) -> bool:
    return isinstance(node, Join) and node.kind is JoinKind.INNER and node.asof is None


@dataclass(frozen=True, slots=True)
class _Ordering:
    """``last`` is the last join of FROM that may have a WITHIN: that one applies to joins without."""

    query: LogicalQuery
    last: Join | None

    def node(self, node: Node) -> Node:
        """The tree with its groups in order."""
        if isinstance(node, Leaf):
            return node
        if _in_group(node):
            group = _group(node)
            if self._may_be_ordered(group) and (order := self._better_order(group)) is not None:
                return self._joined(group, order)
        return self._below(node)

    def _below(self, node: Node) -> Node:
        """The tree with the groups below this one in order."""
        if not _in_group(node):
            return self.node(node) if isinstance(node, Leaf) else self._children(node)
        assert isinstance(node, Join)
        return replace(node, left=self._below(node.left), right=self._below(node.right))

    def _children(self, join: Join) -> Join:
        return replace(join, left=self.node(join.left), right=self.node(join.right))

    def _may_be_ordered(self, group: _Group) -> bool:
        graces = {join.condition.grace for join in group.joins}
        own = any(join.within is not None and join is not self.last for join in group.joins)
        outside = any(leaf.input.stream.outside for part, _ in group.parts for leaf in leaves_of(part))
        return len(graces) == 1 and not own and not outside

    def _better_order(self, group: _Group) -> list[int] | None:
        """The parts in an order in which fewer joins lack a key; None if the text's order is as good."""
        keyed: list[tuple[int, int]] = []
        missing = 0
        place = {i: number for number, (part, _) in enumerate(group.parts) for i in part.inputs}
        for join in group.joins:
            keys = split_conditions(join, self.query.inputs, self.query.columns).keys
            missing += not keys
            for key in keys:
                (i,), (j,) = (inputs_of(side, self.query.columns) for side in (key.left, key.right))
                keyed.append((place[i], place[j]))
        order, missing_then = _by_keys(len(group.parts), keyed)
        return order if missing_then < missing else None

    def _joined(self, group: _Group, order: Sequence[int]) -> Node:
        """The parts joined in an order, each condition at the first join that has all it reads."""
        residual = [term for join in group.joins for term in join.condition.residual]
        loose = [bound for join in group.joins for bound in join.condition.loose]
        grace = group.joins[0].condition.grace
        parts = [(self._below(part), position) for part, position in group.parts]
        joined = parts[order[0]][0]
        for number in order[1:]:
            part, position = parts[number]
            inputs = joined.inputs | part.inputs
            here = [term for term in residual if inputs_of(term, self.query.columns) <= inputs]
            residual = [term for term in residual if not any(term is each for each in here)]
            near, loose = _split(loose, joined, part)
            condition = JoinCondition(residual=tuple(here), loose=tuple(near), grace=grace)
            joined = Join(joined, part, JoinKind.INNER, condition, position, reordered=True)
        assert not residual
        assert not loose
        return joined


def _by_keys(parts: int, keyed: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """An order of parts by the pairs that have a key, and how many joins lack one in it."""
    order, missing = [0], 0
    left = list(range(1, parts))
    while left:
        found = next((each for each in left if any(_meets(pair, each, order) for pair in keyed)), None)
        missing += found is None
        order.append(left[0] if found is None else found)
        left.remove(order[-1])
    return order, missing


def _meets(pair: tuple[int, int], part: int, before: Sequence[int]) -> bool:
    one, other = pair
    return (one == part and other in before) or (other == part and one in before)


def _split(loose: Sequence[Bound], left: Node, right: Node) -> tuple[list[Bound], list[Bound]]:
    """The bounds between two sides, as right time minus left time, and the others."""
    across, others = [], []
    for i, j, interval in loose:
        if i in left.inputs and j in right.inputs:
            across.append((i, j, interval))
        elif j in left.inputs and i in right.inputs:
            across.append((j, i, interval.negated()))
        else:
            others.append((i, j, interval))
    return across, others
