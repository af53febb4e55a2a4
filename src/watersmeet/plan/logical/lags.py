"""How far event times lag behind frontiers, and which sides of joins are unbounded."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.kernels.api import Side
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.logical.tree import Join, Leaf, Node, changing


def lag_of(node: Node, input: int) -> int | None:
    """Return how far an input's event time may lie behind the frontier of ``node``; None if unbounded."""
    if isinstance(node, Leaf):
        return 0 if node.input.is_timed else None
    return node.condition.lags.get(input)


def latest_lag(node: Node, inputs: Iterable[int]) -> int | None:
    """Return the largest lag of some inputs; None if one is unbounded."""
    lags = [lag_of(node, input) for input in inputs]
    known = [lag for lag in lags if lag is not None]
    return max(known) if len(known) == len(lags) else None


def waits_forever(join: Join) -> bool:
    """Whether rows of a join as of a time may stay forever: for a later partner, or to be corrected."""
    if join.asof is None:
        return False
    if join.asof.at is not None or join.asof.corrected is None:
        return True
    if join.asof.direction is Direction.CURRENT or changing(join.left):
        return False
    return _is_stuck(join) or (join.asof.direction is not Direction.BACKWARD and join.asof.tolerance is None)


def unbounded_sides(joins: Iterable[Join]) -> list[tuple[Join, Side]]:
    """Return the joins and sides whose rows must be kept forever, so that state grows with every row."""
    found = []
    for join in joins:
        if join.asof is not None:
            continue
        if join.group is not None:
            reaches = join.group.reaches
            found += [(join, side) for side in Side if any(reaches[i] is None for i in join.child(side).inputs)]
            continue
        bounds = join.condition.bounds
        # a side without a frontier holds back the join, so the other side's rows stay too
        stuck = _is_stuck(join)
        for side, bound in ((Side.LEFT, bounds.upper), (Side.RIGHT, bounds.lower)):
            # a changing stream keeps at most one row for each key
            is_open = bound is None and join.condition.ttl is None and not join.condition.expiries[side.index]
            if (is_open or stuck) and not changing(join.child(side)):
                found.append((join, side))
    return found


def _is_stuck(join: Join) -> bool:
    """Whether a side's leading times may lie arbitrarily far behind the frontier."""
    return any(latest_lag(join.child(side), join.condition.leaders[side.index]) is None for side in Side)
