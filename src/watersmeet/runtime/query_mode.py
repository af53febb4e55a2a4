"""How long a query runs."""

from __future__ import annotations

from enum import Enum


class QueryMode(Enum):
    """How long a query runs."""

    CONTINUOUS = "continuous"  # until it is stopped
    BOUNDED = "bounded"  # processes the input that exists, treats it as complete, flushes and ends
    DRAIN = "drain"  # processes the input that exists and stays resumable
