"""Which segments to merge, so that the number of live ones stays small whatever the window.

Segments are grouped by relation, time partition and size tier (each tier four times the one below).  Four of one
group become one of the next tier, so a partition keeps at most three segments a tier.  Where the rows lie further
apart than expected (an input that is far behind), partitions are widened until there are at most
``MOST_PARTITIONS``.

Large segments of rows that go with their time partition are left as they are: a join reads two in the time that it
takes for one of twice the rows.  Only where ``MOST_LARGE`` segments hold a bucket's relation are the smaller of them
merged too.  Where rows have no bound in time (versions that joins as of a time seek by an index, rows by key, joins
without a window) they stay, and a seek is the cheaper the fewer segments there are.  Large segments are merged four at
a time, a quarter of the groups that are due in each step; those above ``MAX_MERGE_BYTES`` never.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from watersmeet.state.segments import Segment

FAN_IN = 4
MOST_PARTITIONS = 16
LARGE_BYTES = 4 * 1024 * 1024
MOST_LARGE = 128
MAX_MERGE_BYTES = 32 * 1024 * 1024
_SMALLEST_TIER_BYTES = 64 * 1024


def plan_merges(segments: Iterable[Segment], width: int | None) -> list[list[Segment]]:
    """Groups of segments, each to be rewritten as one; partitions are ``width`` wide or wider (None: there is one)."""
    by_relation: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments:
        by_relation[segment.relation].append(segment)
    return [group for held in by_relation.values() for group in _merges_of_relation(held, width)]


def _merges_of_relation(held: list[Segment], width: int | None) -> list[list[Segment]]:
    most = _most_bytes(held, width)
    candidates = [segment for segment in held if segment.nbytes <= most]
    groups: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    fitting = _fitting_width(candidates, width)
    for segment in candidates:
        groups[segment.high // fitting if fitting else 0, _tier(segment.nbytes)].append(segment)
    due = [group for group in groups.values() if len(group) >= FAN_IN]
    small = [group for group in due if not _is_large(group)]
    large = [group[:FAN_IN] for group in due if _is_large(group)]
    return small + large[: -(-len(large) // FAN_IN)]


def _most_bytes(held: list[Segment], width: int | None) -> int:
    """The size of the largest segments of a relation that are merged."""
    if width is None:
        return MAX_MERGE_BYTES
    if len(held) < MOST_LARGE:
        return LARGE_BYTES
    return min(max(LARGE_BYTES, sum(segment.nbytes for segment in held) // MOST_LARGE), MAX_MERGE_BYTES)


def _is_large(group: list[Segment]) -> bool:
    return max(segment.nbytes for segment in group) > LARGE_BYTES


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
