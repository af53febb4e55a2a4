"""Estimates of how many partial results a new row makes, from rates of keys, stored rows, windows and conditions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from watersmeet.kernels.multi_way.key_sample import KeySample
from watersmeet.kernels.multi_way.match import MultiWayMatch
from watersmeet.kernels.multi_way.probe_orders import Order

#: A condition beside keys and windows is taken to hold for one row in three, as in System R (see probe_orders.py).
_SELECTIVITY = 1 / 3
#: Where nothing is known of keys, or nothing matches, windows and conditions decide alone.
_TIE = 1e-9


class Estimates:
    """Estimates for one step, with so many ``old`` rows stored of each input, and so many ``new`` ones."""

    def __init__(self, match: MultiWayMatch, sample: KeySample, old: Sequence[int], new: Sequence[int]) -> None:
        self.old, self.new = old, new
        self._match, self._level, self._shares = match, sample.level, sample.shares()

    def probed_rows(self, input: int, other: int) -> int:
        """Return how many rows of another input the new rows of ``input`` probe (join.py says why)."""
        return self.old[other] + (self.new[other] if other > input else 0)

    def matches(self, input: int, probed: Order) -> float:
        """Return the partial results that a row of ``input`` is expected to make with rows of others."""
        joined = (input, *probed)
        near = {other: self._match.share_near(other, joined) for other in probed}
        found = self._shares[:, input]
        for other in probed:
            found = found * self._shares[:, other] * (self.probed_rows(input, other) * near[other])
        by_key = math.ldexp(found.sum(), self._level)
        chance = math.pow(_SELECTIVITY, self._match.conditions_over(joined))
        return chance * (by_key + _TIE * math.prod(near.values()))
