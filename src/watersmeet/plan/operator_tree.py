"""The tree of a query's operators: each above what it takes rows from.  EXPLAIN draws it, and so does the live page.

join_1
├─ bids
└─ w_aggregate
   └─ bids'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.plan.physical_plan import PhysicalPlan


@dataclass(frozen=True, slots=True)
class TreeNode:
    """An operator or a stream, and what it takes rows from.

    ``name`` is that of the operator, or the alias of the stream, and ``text`` what EXPLAIN draws.  ``counted_as`` is
    the alias under which the operator above counts the rows of this node as packed ones (empty: they come unpacked).
    """

    name: str
    text: str
    is_source: bool
    counted_as: str = ""
    below: tuple[TreeNode, ...] = ()

    @property
    def operators(self) -> Iterator[TreeNode]:
        """All operators of the tree, the last one first."""
        if not self.is_source:
            yield self
        for node in self.below:
            yield from node.operators


def operator_tree(plan: PhysicalPlan) -> TreeNode:
    """The tree of a plan: its last operator, above all others."""
    return _operator(plan, len(plan.operators) - 1)


def drawn_tree(plan: PhysicalPlan) -> Iterator[str]:
    """The lines of the drawing, the last operator first."""
    yield from _lines(operator_tree(plan))


def _operator(plan: PhysicalPlan, number: int, counted_as: str = "") -> TreeNode:
    operator = plan.operators[number]
    below: list[TreeNode] = []
    for feed in operator.feeds:
        if feed.operator is not None:
            below.append(_operator(plan, feed.operator))
        elif feed.source is not None:
            below += _source(plan, feed.source)
    return TreeNode(operator.name, operator.name, is_source=False, counted_as=counted_as, below=tuple(below))


def _source(plan: PhysicalPlan, number: int) -> Iterator[TreeNode]:
    part = plan.inputs[number]
    input = part.input
    if part.branches:
        yield from (_operator(plan, branch.operator, input.alias) for branch in part.branches)
        return
    name = input.alias if input.alias == input.stream.name else f"{input.alias} ({input.stream.name})"
    windows = "".join(f", {window.text(input.window_time.unit)}" for window in input.windows)
    exploded = "".join(f", exploded by {each.text}" for each in input.explodes)
    yield TreeNode(input.alias, f"{name}{windows}{exploded}", is_source=True, counted_as=input.alias)


def _lines(node: TreeNode) -> Iterator[str]:
    yield node.text
    yield from _below(node.below)


def _below(nodes: Sequence[TreeNode]) -> Iterator[str]:
    for number, node in enumerate(nodes, 1):
        first, further = ("└─ ", "   ") if number == len(nodes) else ("├─ ", "│  ")
        for place, line in enumerate(_lines(node)):
            yield (further if place else first) + line
