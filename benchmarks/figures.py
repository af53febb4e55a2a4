"""How figures are made of measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence


def p95(values: Sequence[float]) -> float:
    """The least of the values that 95% of them do not exceed (nearest rank); of fewer than 20 it is the largest."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]
