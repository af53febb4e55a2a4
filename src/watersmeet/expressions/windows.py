"""Time windows: which of them a row belongs to, and when each has ended.

    TUMBLE    [0, 10) [10, 20) [20, 30) …                   windows of one size, one after the other
    HOP       [0, 10) [2, 12) [4, 14) …                     one begins at every slide; a row is in several
    CUMULATE  [0, 2) [0, 4) … [0, 10), [10, 12) [10, 14) …  they grow by a step up to the size

A window holds the times ``start <= t < end``.  All lengths are in units of internal event time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from watersmeet.expressions.event_time import TimeUnit, span_text


class WindowKind(Enum):
    """How windows follow each other; the value is the name of the function in SQL."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"


class WindowBound(Enum):
    """A column that tells a row's window; the value is its name in SQL."""

    START = "window_start"
    END = "window_end"
    TIME = "window_time"
    """The last time in the window that its columns can show: its end less a millisecond, or one row."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows over the event time of an input; ``step`` is the slide of HOP, and the size of TUMBLE."""

    kind: WindowKind
    size: int
    step: int
    offset: int = 0

    @property
    def is_single(self) -> bool:
        """Whether a row is in one window only."""
        return self.kind is WindowKind.TUMBLE

    @property
    def grows(self) -> bool:
        """Whether windows with one start have several ends."""
        return self.kind is WindowKind.CUMULATE

    def before_end(self, bound: WindowBound, unit: TimeUnit) -> int:
        """How far a bound of a window lies before its end, at most."""
        match bound:
            case WindowBound.END:
                return 0
            case WindowBound.START:
                return self.size
        return last_before_end(unit)

    def text(self, unit: TimeUnit) -> str:
        """The windows as EXPLAIN has them."""
        size, step = span_text(self.size, unit), span_text(self.step, unit)
        shifted = f", offset by {span_text(self.offset, unit)}" if self.offset else ""
        match self.kind:
            case WindowKind.TUMBLE:
                return f"windows of {size}{shifted}"
            case WindowKind.HOP:
                return f"windows of {size}, one every {step}{shifted}"
        return f"windows that grow by {step} up to {size}{shifted}"


def last_before_end(unit: TimeUnit) -> int:
    """How far ``window_time`` lies before the end of a window."""
    return 1_000 if unit in (TimeUnit.TIMESTAMP, TimeUnit.TIMESTAMP_NTZ) else unit.scale
