"""Which segments to merge, so that the number of live ones stays small whatever the window.

Segments are grouped by relation, time partition and size tier (each tier four times the one below).  Four of one
group become one of the next tier, so a partition keeps at most three segments a tier.  Where the rows lie further
apart than expected (an input that is far behind), partitions are widened until there are at most
``MOST_PARTITIONS``.  Segments above ``MAX_MERGE_BYTES`` are left as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from watersmeet.state.segments import Segment

FAN_IN = 4
MOST_PARTITIONS = 16
MAX_MERGE_BYTES = 32 * 1024 * 1024
_SMALLEST_TIER_BYTES = 64 * 1024


def plan_merges(segments: Iterable[Segment], width: int | None) -> list[list[Segment]]:
    """Groups of segments, each to be rewritten as one; partitions are ``width`` wide or wider (None: there is one)."""
    by_relation: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments:
        if segment.nbytes <= MAX_MERGE_BYTES:
            by_relation[segment.relation].append(segment)
    found: list[list[Segment]] = []
    for small in by_relation.values():
        groups: dict[tuple[int, int], list[Segment]] = defaultdict(list)
        fitting = _fitting_width(small, width)
        for segment in small:
            groups[segment.high // fitting if fitting else 0, _tier(segment.nbytes)].append(segment)
        found += [group for group in groups.values() if len(group) >= FAN_IN]
    return found


def _fitting_width(segments: list[Segment], width: int | None) -> int | None:
    """The width, doubled until the segments lie in few enough partitions."""
    while width is not None and len({segment.high // width for segment in segments}) > MOST_PARTITIONS:
        width *= 2
    return width


def _tier(nbytes: int) -> int:
    tier = 0
    while nbytes > _SMALLEST_TIER_BYTES:
        nbytes //= FAN_IN
        tier += 1
    return tier
