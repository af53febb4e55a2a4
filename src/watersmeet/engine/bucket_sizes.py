"""How much of a join's state each bucket may hold, by what all buckets wanted to hold after the last batch.

A join has one limit for all its buckets, which are steps of different tasks and do not see each other.  So each reports
its size with every batch, and finds all sizes at the next: whichever attempt runs, it finds the same.

A bucket may hold its share of the limit by what it wanted to hold: what it held, and what it evicted.  Then all buckets
evict rows of about the same age: one that gets twice as many rows comes to hold twice as many.  A part of the limit is
divided evenly, so that a bucket that had no rows may begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

#: The part of the limit that is divided evenly.
_EVEN = 1 / 8


class SizeLog(Protocol):
    """The sizes of one operator's buckets, in bytes, by bucket."""

    def read(self) -> Mapping[int, int]:
        """Return what all buckets reported for the batch before this one; empty at the first batch."""

    def report(self, bucket: int, size: int) -> None:
        """Report what a bucket wants to hold after this batch."""


def allowance(limit: int, sizes: Mapping[int, int], bucket: int, buckets: int) -> int:
    """Return how many of the ``limit``'s bytes a bucket may hold.

    >>> allowance(800, {0: 600, 1: 200}, 0, 2), allowance(800, {}, 0, 2)
    (575, 400)
    """
    if not (total := sum(sizes.values())):
        return limit // buckets
    even = int(limit * _EVEN)
    return even // buckets + (limit - even) * sizes.get(bucket, 0) // total
