"""The tree of a query's operators, drawn: each under the one that takes its results.

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
class _Drawn:
    """An operator or a stream, and what it takes rows from."""

    text: str
    below: tuple[_Drawn, ...] = ()


def drawn_tree(plan: PhysicalPlan) -> Iterator[str]:
    """The lines of the drawing, the last operator first."""
    yield from _lines(_operator(plan, len(plan.operators) - 1))


def _operator(plan: PhysicalPlan, number: int) -> _Drawn:
    operator = plan.operators[number]
    below: list[_Drawn] = []
    for feed in operator.feeds:
        if feed.operator is not None:
            below.append(_operator(plan, feed.operator))
        elif feed.source is not None:
            below += _source(plan, feed.source)
    return _Drawn(operator.name, tuple(below))


def _source(plan: PhysicalPlan, number: int) -> Iterator[_Drawn]:
    part = plan.inputs[number]
    if part.branches:
        yield from (_operator(plan, branch.operator) for branch in part.branches)
        return
    input = part.input
    name = input.alias if input.alias == input.stream.name else f"{input.alias} ({input.stream.name})"
    windows = "".join(f", {window.text(input.time.unit)}" for window in input.windows)
    exploded = "".join(f", exploded by {each.text}" for each in input.explodes)
    yield _Drawn(f"{name}{windows}{exploded}")


def _lines(node: _Drawn) -> Iterator[str]:
    yield node.text
    yield from _below(node.below)


def _below(nodes: Sequence[_Drawn]) -> Iterator[str]:
    for number, node in enumerate(nodes, 1):
        first, further = ("└─ ", "   ") if number == len(nodes) else ("├─ ", "│  ")
        for place, line in enumerate(_lines(node)):
            yield (further if place else first) + line
