"""Faults: how often they come, how many, and which errors are theirs."""

from __future__ import annotations

from tests.simulation.decisions import Decisions


class Faults:
    """At most so many faults, each with the chance ``rate`` wherever one may happen."""

    def __init__(self, decisions: Decisions, rate: float, most: int) -> None:
        self.rate = rate
        self._decisions = decisions
        self._left = most

    def happens(self, what: str, rate: float | None = None) -> bool:
        """Whether a fault happens now, at the usual rate or another one."""
        if not self._left or not self._decisions.happens(self.rate if rate is None else rate):
            return False
        self._left -= 1
        self._decisions.note(f"  {what}")
        return True


def is_of_disk(error: BaseException) -> bool:
    """Whether an operation on the disk failed, which a task reports in words of its own."""
    return isinstance(error, OSError) or isinstance(error.__context__, OSError)
