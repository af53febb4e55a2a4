"""Statistics of measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence


def p95(values: Sequence[float]) -> float:
    """Return the least value that 95% of the values do not exceed (nearest rank); of fewer than 20, the largest."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]
