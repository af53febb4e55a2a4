"""How long a query runs."""

from __future__ import annotations

from enum import Enum


class QueryMode(Enum):
    """How long a query runs."""

    CONTINUOUS = "continuous"
    """Until it is stopped."""
    BOUNDED = "bounded"
    """It processes the input that exists, treats it as complete, flushes and ends."""
    DRAIN = "drain"
    """It processes the input that exists, and stays resumable."""
