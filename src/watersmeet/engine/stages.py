"""The stages of a step whose frontier passes more stored rows than a step may hold: it advances in stages.

An input that was silent holds the frontier back while others go on.  When it comes back, all that waited is due, and
may be as much as the whole state.  So the frontier stops in between: at each stage it passes rows of about the bytes
that a step may have.  Results are the same, since a frontier may advance in any number of stages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil

from watersmeet.kernels.api import StepFrontiers
from watersmeet.state.segments import Segment


def stages(
    frontiers: StepFrontiers, segments: Sequence[Segment], relations: Collection[str], max_bytes: int | None
) -> Iterator[StepFrontiers]:
    """Yield the frontiers of all stages, at least one; the first is that of new rows.

    The rows of ``relations`` are due once the frontier has passed their ``$t``.
    """
    waiting = [each for each in segments if each.relation in relations]
    between = [] if max_bytes is None else _cuts(waiting, frontiers.before, frontiers.after, max_bytes)
    for before, after in pairwise([frontiers.before, *between, frontiers.after]):
        inputs = frontiers.inputs if after == frontiers.after else frontiers.inputs_before
        yield StepFrontiers(before, after, inputs, frontiers.inputs_before)


def _cuts(segments: Iterable[Segment], before: int, after: int, max_bytes: int) -> Iterator[int]:
    """Yield times between which rows with ``before <= $t < after`` have about so many bytes.

    The rows of a segment are taken to be spread evenly over its times.
    """
    densities: dict[int, float] = defaultdict(float)  # by time, how the bytes for each unit of time change there
    for each in segments:
        low, high = max(each.low, before), min(each.high + 1, after)
        if low < high:
            density = each.nbytes / (each.high + 1 - each.low)
            densities[low] += density
            densities[high] -= density
    time, passed, density = before, 0.0, 0.0
    ends = sorted(densities)
    for end in ends:
        while density > 0 and passed + density * (end - time) > max_bytes:
            step = ceil((max_bytes - passed) / density)
            if step >= end - time:
                break
            time, passed = time + step, 0.0
            yield time
        passed += density * (end - time)
        time, density = end, density + densities[end]
        if passed >= max_bytes and time < ends[-1]:
            yield time
            passed = 0.0
