"""Which segments to merge, so that the number of live ones stays small whatever the window.

Segments are grouped by relation, time partition and size tier (each tier four times the one below).  Four of one
group become one of the next tier: a row is rewritten at most once per tier, and a partition keeps at most three
segments a tier.  Segments above ``MAX_MERGE_BYTES`` are left as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from watersmeet.state.segments import Segment

FAN_IN = 4
MAX_MERGE_BYTES = 32 * 1024 * 1024
_SMALLEST_TIER_BYTES = 64 * 1024


def plan_merges(segments: Iterable[Segment], width: int | None) -> list[list[Segment]]:
    """Groups of segments, each to be rewritten as one; partitions are ``width`` wide (None: one partition)."""
    groups: dict[tuple[str, int, int], list[Segment]] = defaultdict(list)
    for segment in segments:
        if segment.nbytes <= MAX_MERGE_BYTES:
            partition = segment.high // width if width else 0
            groups[segment.relation, partition, _tier(segment.nbytes)].append(segment)
    return [group for group in groups.values() if len(group) >= FAN_IN]


def _tier(nbytes: int) -> int:
    tier = 0
    while nbytes > _SMALLEST_TIER_BYTES:
        nbytes //= FAN_IN
        tier += 1
    return tier
