"""A histogram of how long steps take, from the first frame to the last piece of their results that is sent.

The scale is logarithmic, four bins for each doubling, so that the counts of all buckets add up: 1,024 microseconds are
in bin 40, 1,218 in bin 41.  A percentile is the middle of its bin, and so exact to about 9%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_BINS_PER_DOUBLING = 4
#: The counter of a bin is ``OPERATOR.step_time.BIN``.
STEP_TIME = "step_time"


def bin_of(seconds: float) -> int:
    """Return the bin of a length."""
    return int(math.log2(max(seconds * 1_000_000, 1)) * _BINS_PER_DOUBLING)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Return the length in seconds that a ``share`` of all steps does not exceed, about; None without steps.

    >>> percentile({40: 19, 60: 1}, 0.5), percentile({}, 0.5)
    (0.0011166991282112312, None)
    """
    wanted, seen = share * sum(counts.values()), 0
    for number, count in sorted(counts.items()):
        seen += count
        if seen >= wanted:
            middle: float = 2 ** ((number + 0.5) / _BINS_PER_DOUBLING)
            return middle / 1_000_000
    return None
