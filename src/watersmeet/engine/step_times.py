"""How long steps take, as counts by length: bins a quarter of an octave wide, so that counts of all buckets add up.

A length of 2**10 = 1,024 microseconds is in bin 40, one of 1,218 in bin 41: a percentile is known to 19%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_BINS_PER_OCTAVE = 4
#: The counter of a bin is ``OPERATOR.step_time.BIN``.
STEP_TIME = "step_time"


def bin_of(seconds: float) -> int:
    """Return the bin of a length."""
    return int(math.log2(max(seconds * 1_000_000, 1)) * _BINS_PER_OCTAVE)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Return the length in seconds that a ``share`` of all steps does not exceed, about; None without steps.

    >>> percentile({40: 19, 60: 1}, 0.5), percentile({}, 0.5)
    (0.0011166991282112312, None)
    """
    wanted, seen = share * sum(counts.values()), 0
    for number, count in sorted(counts.items()):
        seen += count
        if seen >= wanted:
            middle: float = 2 ** ((number + 0.5) / _BINS_PER_OCTAVE)
            return middle / 1_000_000
    return None
