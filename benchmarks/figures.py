"""Statistics of measured figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def nearest_rank(ascending: Sequence[float], percent: int) -> float:
    """Return the least of the sorted values that so many percent of them do not exceed."""
    return ascending[math.ceil(percent * len(ascending) / 100) - 1]


def p95(values: Sequence[float]) -> float:
    """Return the least value that 95% of the values do not exceed (nearest rank); of fewer than 20, the largest."""
    return nearest_rank(sorted(values), 95)


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Return by how much the values grow in a unit of time, by least squares; there are two different times or more."""
    return statistics.linear_regression(times, values).slope
