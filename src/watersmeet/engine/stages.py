"""The stages of a step whose frontier passes more stored rows than a step may hold: it advances in stages.

An input that was silent holds the frontier back while others go on.  When it comes back, all that waited is due, and
may be as much as the whole state.  So the frontier stops in between: at each stage it passes rows of about the bytes
that a step may have.  Results are the same, since a frontier may advance in any number of stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from watersmeet.kernels.api import StepFrontiers
from watersmeet.state.segments import Segment


def stages(
    frontiers: StepFrontiers, segments: Sequence[Segment], relation: str | None, max_bytes: int | None
) -> Iterator[StepFrontiers]:
    """Yield the frontiers of all stages, at least one; the first is that of new rows.

    The rows of ``relation`` (None: nothing waits) are due once the frontier has passed their ``$t``.
    """
    waiting = _Waiting([each for each in segments if each.relation == relation], frontiers.before, frontiers.after)
    parts = 1 if max_bytes is None else max(-(-waiting.nbytes // max_bytes), 1)
    between = (waiting.time_of(part * waiting.nbytes // parts) for part in range(1, parts))
    cuts = [frontiers.before, *(time for time in dict.fromkeys(between) if time < frontiers.after), frontiers.after]
    for before, after in pairwise(cuts):
        inputs = frontiers.inputs if after == frontiers.after else frontiers.inputs_before
        yield StepFrontiers(before, after, inputs, frontiers.inputs_before)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Stored rows with ``before <= $t < after``; those of a segment are taken to be spread evenly over its times."""

    segments: Sequence[Segment]
    before: int
    after: int

    @property
    def nbytes(self) -> int:
        return self.bytes_before(self.after)

    def bytes_before(self, time: int) -> int:
        """Return the bytes of rows with ``$t`` below a time."""
        return sum(self._part(each, time) for each in self.segments)

    def time_of(self, nbytes: int) -> int:
        """Return the least time below which rows have at least so many bytes."""
        low, high = max(self.before, min(each.low for each in self.segments) - 1), self.after
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.bytes_before(middle) >= nbytes else (middle, high)
        return high

    def _part(self, segment: Segment, time: int) -> int:
        times = segment.high - segment.low + 1
        passed = min(time, segment.high + 1) - max(self.before, segment.low)
        return segment.nbytes * max(passed, 0) // times
