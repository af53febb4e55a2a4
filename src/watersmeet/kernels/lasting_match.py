"""Rows that leave a join some time after the frontier has passed them, where no window says when (``join_ttl``).

A stored row at ``t`` is gone once ``t < F - ttl``, F being the operator's frontier after a step.  At the next step it
finds no partner, whatever else the state still holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.kernels.api import FOREVER, Side, shift
from watersmeet.kernels.expiring_match import ExpiringMatch
from watersmeet.kernels.match import WindowMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingMatch(ExpiringMatch):
    """A join with a side, or two, that neither a window nor expiries bound: its rows stay for ``ttl``.

    ``names`` are what counters call the sides.  A query may go on with another ``ttl``: what is stored is the same.
    """

    ttl: int = field(repr=False)
    names: tuple[str, str] = field(repr=False)

    def lasts(self, side: Side) -> bool:
        """Whether the rows of a side leave by their age alone."""
        bound = self.upper if side is Side.LEFT else self.lower
        return bound is None and not self.expires(side)

    @property
    def partition_width(self) -> int | None:
        """An eighth of the time that rows stay."""
        if self.expires(Side.LEFT) or self.expires(Side.RIGHT):
            return max(self.slack // 8, 1)
        ahead, behind = (self.ttl if bound is None else bound for bound in (self.upper, _negated(self.lower)))
        return max((ahead + behind + self.slack) // 8, 1)

    def closed_before(self, side: Side, frontier: int) -> int:
        """Return the time below which rows of a side have left, or have all their partners."""
        # named, because slots and zero-argument super() do not go together
        if self.lasts(side):
            return self.gone_before(side, frontier)
        return ExpiringMatch.closed_before(self, side, frontier)

    def gone_before(self, side: Side, frontier: int) -> int:
        """Return the time below which rows of a side have left by their age."""
        return shift(frontier, -self.ttl) if self.lasts(side) else WindowMatch.gone_before(self, side, frontier)

    def counter_of_expired(self, side: Side, frontier: int) -> str | None:
        """Return the counter of rows that leave by their age; at the end of input all rows are final instead."""
        return f"expired.{self.names[side.index]}" if self.lasts(side) and frontier != FOREVER else None


def _negated(bound: int | None) -> int | None:
    return None if bound is None else -bound
