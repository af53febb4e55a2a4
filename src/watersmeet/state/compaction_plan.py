"""Compaction: which segments to merge, so that few segments are live whatever the window.

Segments are grouped by relation, time partition and size tier.  Tier 0 holds segments of up to 64 KiB, tier 1 up to
256 KiB, tier 2 up to 1 MiB: each is four times the one below.  Four segments of a group become one of the next tier,
so a partition keeps at most three segments of each tier.  If rows are further apart than expected (an input is far
behind), partitions are widened until there are at most ``MAX_PARTITIONS``.

Large segments, of more than 4 MiB:

- Rows with a bound in time are dropped with their partition, and a join reads two segments as fast as one of twice the
  rows.  So large segments are merged only if a relation has ``MAX_LARGE`` segments, and then only those up to its
  average size: 128 segments with 1 GiB are merged up to 8 MiB.
- Rows without a bound in time stay (versions, rows by primary key, joins without a window), and an index lookup is
  cheaper with fewer segments.  So large segments are merged too, up to ``MAX_MERGE_BYTES``.

With little memory, segments larger than a quarter of ``max_bytes`` are not merged, so their number grows with the
state.

Each step merges all due groups of small segments, and a quarter of the due groups of large ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from watersmeet.state.segments import Segment

FAN_IN = 4
MAX_PARTITIONS = 16
LARGE_BYTES = 4 * 1024 * 1024
MAX_LARGE = 128
MAX_MERGE_BYTES = 32 * 1024 * 1024
_SMALLEST_TIER_BYTES = 64 * 1024


def plan_merges(segments: Iterable[Segment], width: int | None, max_bytes: int | None = None) -> list[list[Segment]]:
    """Return groups of segments, each to be rewritten as one; no segment has more than a quarter of ``max_bytes``.

    ``width`` is the least width of a time partition in the units of ``$t`` (None: one partition).
    """
    by_relation: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments:
        by_relation[segment.relation].append(segment)
    largest = MAX_MERGE_BYTES if max_bytes is None else min(MAX_MERGE_BYTES, max_bytes // FAN_IN)
    return [group for each in by_relation.values() for group in _merges_of_relation(each, width, largest)]


def _merges_of_relation(segments: list[Segment], width: int | None, largest: int) -> list[list[Segment]]:
    most = min(_max_bytes(segments, width), largest)
    candidates = [segment for segment in segments if segment.nbytes <= most]
    groups: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    fitting = _fitting_width(candidates, width)
    for segment in candidates:
        groups[segment.high // fitting if fitting else 0, _tier(segment.nbytes)].append(segment)
    due = [group for group in groups.values() if len(group) >= FAN_IN]
    small = [part for group in due if not _is_large(group) for part in _parts(group, FAN_IN * largest)]
    large = [group[:FAN_IN] for group in due if _is_large(group)]
    return small + large[: -(-len(large) // FAN_IN)]


def _parts(group: list[Segment], max_bytes: int) -> list[list[Segment]]:
    """Divide a group into those of at most ``max_bytes``; what is left over waits for others."""
    parts: list[list[Segment]] = [[]]
    held = 0
    for segment in group:
        if held + segment.nbytes > max_bytes:
            parts.append([])
            held = 0
        parts[-1].append(segment)
        held += segment.nbytes
    return [part for part in parts if len(part) > 1]


def _max_bytes(segments: list[Segment], width: int | None) -> int:
    """Return the size above which a relation's segments are not merged."""
    if width is None:
        return MAX_MERGE_BYTES
    if len(segments) < MAX_LARGE:
        return LARGE_BYTES
    return min(max(LARGE_BYTES, sum(segment.nbytes for segment in segments) // MAX_LARGE), MAX_MERGE_BYTES)


def _is_large(group: list[Segment]) -> bool:
    return max(segment.nbytes for segment in group) > LARGE_BYTES


def _fitting_width(segments: list[Segment], width: int | None) -> int | None:
    """Double the width until the segments are in few enough partitions."""
    while width is not None and len({segment.high // width for segment in segments}) > MAX_PARTITIONS:
        width *= 2
    return width


def _tier(nbytes: int) -> int:
    tier = 0
    while nbytes > _SMALLEST_TIER_BYTES:
        nbytes //= FAN_IN
        tier += 1
    return tier
