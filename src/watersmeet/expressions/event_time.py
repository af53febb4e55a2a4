"""Event times: their column, and how they map to internal event time.

Internal event time is an int64. It counts microseconds since the epoch for timestamps and for integers in seconds,
milliseconds or microseconds, and rows for plain sequence numbers (unit ``row``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TimeUnit(Enum):
    """What an event-time column counts."""

    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    ROWS = "row"

    @property
    def scale(self) -> int:
        """Units of internal event time in one unit of the column."""
        return {TimeUnit.SECONDS: 1_000_000, TimeUnit.MILLISECONDS: 1_000}.get(self, 1)

    @property
    def is_integer(self) -> bool:
        """Whether the column is an integer."""
        return self not in (TimeUnit.TIMESTAMP, TimeUnit.TIMESTAMP_NTZ)


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event-time column of a stream, its unit, and the watermark delay in units of internal event time."""

    column: str
    unit: TimeUnit
    delay: int = 0
    declared: bool = True


def span_text(amount: int, unit: TimeUnit) -> str:
    """Format a length of internal event time for messages."""
    if unit is TimeUnit.ROWS:
        return f"{amount} rows"
    if amount % 1_000:
        return f"{amount} µs"
    seconds = amount / 1_000_000
    for name, length in (("h", 3600), ("min", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:g} {name}"
    return f"{seconds:g} s"
