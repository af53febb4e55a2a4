"""Which operators may spread the rows of a hot key over their buckets (engine/hot_keys.py), and which rows."""

from __future__ import annotations

from watersmeet.kernels.api import Side
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.plan.physical import PhysicalOperator


def spreadable(operator: PhysicalOperator) -> tuple[Side, ...]:
    """The sides whose rows may be spread: of windowed joins of two sources, whose state has an end.

    The rows of the other side are copied to all buckets, so they may not come out by themselves: unmatched, or as the
    left rows of a semi join.
    """
    kernel = operator.kernel
    if not isinstance(kernel, IntervalJoin) or operator.single_bucket:
        return ()
    match = kernel.match
    if match.lower is None or match.upper is None:
        return ()
    if not all(feed.source is not None and feed.holds_back for feed in operator.feeds):
        return ()
    return tuple(side for side in Side if match.kind.shows(side) and not match.kind.keeps(side.other))


def reach_of(operator: PhysicalOperator) -> int:
    """How far the newest rows of a windowed join lie from those that are past: its window, and the frontier's delay."""
    kernel = operator.kernel
    assert isinstance(kernel, IntervalJoin)
    match = kernel.match
    assert match.lower is not None
    assert match.upper is not None
    return max(match.upper - match.lower + match.slack, 1)
