"""The limits of a join's state, and what is evicted to keep them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Policy(StrEnum):
    """What happens to a state that would take more bytes than it may."""

    STOP = "stop"  # the query stops, and nothing is lost
    OLDEST = "oldest"  # rows with the least event times are evicted
    LRU = "lru"  # keys of which no row has come for longest are evicted, with all their rows
    PER_KEY = "per_key"  # the query stops; but of a key with too many rows the oldest are evicted
    PRESSURE = "pressure"  # the oldest rows are evicted, more than is needed, so that most steps evict none

    @property
    def evicts_at_limit(self) -> bool:
        """Whether rows make room for others where the state would take too many bytes."""
        return self in (Policy.OLDEST, Policy.LRU, Policy.PRESSURE)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one join; how many bytes a bucket may hold, each step is told (``StateView.max_bytes``).

    - ``max_rows_per_key``: the most rows that each side may hold of a key (None: any number).
    - ``max_bytes``: the most bytes of the whole join.
    - ``names``: what counters and errors call the sides.
    - ``keeps_rows``: evicted rows go to the side output.
    """

    policy: Policy
    max_rows_per_key: int | None
    max_bytes: int
    names: tuple[str, str]
    keeps_rows: bool = False
