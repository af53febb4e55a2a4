"""Which segments to merge, so that the number of live ones stays small whatever the window.

Segments are grouped by relation, time partition and size tier (each tier four times the one below).  Four of one
group become one of the next tier, so a partition keeps at most three segments a tier.  Where the rows lie further
apart than expected (an input that is far behind), partitions are widened until there are at most
``MOST_PARTITIONS``.

Segments are left as they are where ``ENOUGH`` of their size hold the whole relation, and above ``MAX_MERGE_BYTES``: to
rewrite large ones would cost more than fewer of them save, in the worker that does it and in those that load them anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from watersmeet.state.segments import Segment

FAN_IN = 4
MOST_PARTITIONS = 16
MAX_MERGE_BYTES = 32 * 1024 * 1024
ENOUGH = 64
_LEAST_LEFT_BYTES = 1024 * 1024
_SMALLEST_TIER_BYTES = 64 * 1024


def plan_merges(segments: Iterable[Segment], width: int | None) -> list[list[Segment]]:
    """Groups of segments, each to be rewritten as one; partitions are ``width`` wide or wider (None: there is one)."""
    by_relation: dict[str, list[Segment]] = defaultdict(list)
    for segment in segments:
        by_relation[segment.relation].append(segment)
    found: list[list[Segment]] = []
    for all_of_it in by_relation.values():
        most = max(_LEAST_LEFT_BYTES, sum(segment.nbytes for segment in all_of_it) // ENOUGH)
        small = [segment for segment in all_of_it if segment.nbytes <= min(most, MAX_MERGE_BYTES)]
        groups: dict[tuple[int, int], list[Segment]] = defaultdict(list)
        fitting = _fitting_width(small, width)
        for segment in small:
            groups[segment.high // fitting if fitting else 0, _tier(segment.nbytes)].append(segment)
        found += [_one_merge(group) for group in groups.values() if len(group) >= FAN_IN]
    return found


def _one_merge(group: list[Segment]) -> list[Segment]:
    """As many of a group as fit into ``MAX_MERGE_BYTES``, at least ``FAN_IN``: no step rewrites a large state whole."""
    chosen: list[Segment] = []
    nbytes = 0
    for segment in group:
        nbytes += segment.nbytes
        if len(chosen) >= FAN_IN and nbytes > MAX_MERGE_BYTES:
            break
        chosen.append(segment)
    return chosen


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
