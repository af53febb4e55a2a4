"""Idle inputs: an input that is silent for the idle timeout must not hold back the frontier."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from watersmeet.engine.control_events import Event, EventKind


class IdleWatch:
    """Detects parts of inputs that have brought no row for ``timeout`` seconds (None: never).

    The clock is the driver's.  What it detects enters the query as a logged event, so that every worker and every
    attempt at a batch sees the same.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._last: dict[tuple[str, str], tuple[int, float]] = {}
        self._idle: set[tuple[str, str]] = set()

    def events(self, counters: Mapping[str, int]) -> Iterator[Event]:
        """Events for parts that have become idle since the last call; ``counters`` are the query's own."""
        if self._timeout is None:
            return
        now = time.monotonic()
        for name, heard in counters.items():
            match name.split(".", 3):
                case [_, "heard", input, part]:
                    key = (input, part)
                case _:
                    continue
            known, since = self._last.get(key, (-1, now))
            if heard != known:
                self._last[key] = (heard, now)
                self._idle.discard(key)
            elif now - since >= self._timeout and key not in self._idle:
                self._idle.add(key)
                yield Event(EventKind.IDLE, inputs=(input,), parts=(part,), observed=heard)
