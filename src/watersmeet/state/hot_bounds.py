"""Hot bounds: how much of a bucket's state hybrid mode keeps in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.state.segments import Segment


@dataclass(frozen=True, slots=True)
class HotBounds:
    """At most so many rows and so many bytes; None is no bound."""

    rows: int | None = None
    nbytes: int | None = None

    def allow(self, rows: int, nbytes: int) -> bool:
        """Return whether so much is within the bounds."""
        return (self.rows is None or rows <= self.rows) and (self.nbytes is None or nbytes <= self.nbytes)

    def part(self, count: int) -> HotBounds:
        """Return one of ``count`` equal parts of the bounds."""
        rows, nbytes = (None if each is None else each // count for each in (self.rows, self.nbytes))
        return HotBounds(rows, nbytes)


def newest_segments(live: Sequence[Segment], bounds: HotBounds | None, rows: int = 0, nbytes: int = 0) -> set[str]:
    """Return the ids of the newest segments that are within the bounds (None: of all segments).

    ``rows`` and ``nbytes`` are what else counts.
    ``live`` is in the order of writing.  Rows that change are written again, so the newest segments hold the rows in
    use.
    """
    if bounds is None:
        return {segment.id for segment in live}
    found: set[str] = set()
    for segment in reversed(live):
        rows, nbytes = rows + segment.rows, nbytes + segment.nbytes
        if not bounds.allow(rows, nbytes):
            break
        found.add(segment.id)
    return found
