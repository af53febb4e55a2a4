"""Follows how much of a run's input was read, in a thread beside it: sources are asked there, and logs are read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from watersmeet.runtime.run_progress import Extent, InputProgress, Measure, RunInput, Unit
from watersmeet.runtime.source_warnings import place_of

_log = logging.getLogger(__name__)
#: The time over which the rate is taken, if the run takes that long.
_RATE_SECONDS = 60.0


@dataclass(slots=True)
class _Part:
    """What a measure has found: how much lay ahead at the start of the run, and does now, in each of its sources."""

    stream: str
    measure: Measure
    extent: Extent | None
    at_start: dict[int, int | None] = field(default_factory=dict)
    now: dict[int, int | None] = field(default_factory=dict)


class ProgressWatch:
    """Says how much of each stream was read since the run began."""

    def __init__(self, input: RunInput, began: float) -> None:
        self._input = input
        self._parts: list[_Part] = []
        self._changed = threading.Condition()
        self._first: Mapping[str, Any] | None = None
        self._newest: tuple[Mapping[str, Any], float] | None = None
        self._is_counting = self._is_closed = False
        self._samples: tuple[tuple[float, Mapping[str, int]], ...] = ((began, {}),)
        self._inputs = tuple(InputProgress(name) for name in input.measures)
        self._thread = threading.Thread(target=self._run, name="watersmeet-progress", daemon=True)
        self._thread.start()

    @property
    def inputs(self) -> tuple[InputProgress, ...]:
        """How much of each stream was read."""
        return self._inputs

    def take(self, progress: Mapping[str, Any], now: float, seconds: float) -> None:
        """Take what Spark reports of a batch, and wait until it is counted, at most so long.

        Of several reports that are not counted yet, the newest counts.
        """
        with self._changed:
            if self._is_closed:
                return
            self._first = self._first or progress
            self._newest = (progress, now)
            self._is_counting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_counting, seconds)

    def remaining(self, now: float) -> float | None:
        """How many seconds of reading are left at the rate of late; None if that is not known."""
        (then, before), (last, _) = self._samples[0], self._samples[-1]
        longest = 0.0
        for each in self._inputs:
            if each.ahead is None:
                return None
            left, read = each.ahead - each.done, each.done - before.get(each.name, 0)
            if left > 0:
                if read <= 0:
                    return None
                longest = max(longest, left / read * (last - then))
        return max(longest - (now - last), 0.0) if last > then else None

    def close(self, seconds: float) -> None:
        """End the thread when it has followed what was reported last, and wait for that, at most so long."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            for stream, measures in self._input.measures.items():
                self._parts += [_Part(stream, measure, _extent(measure)) for measure in measures]
            self._count()
            while (newest := self._next()) is not None:
                self._follow(*newest)
                self._set_counted()
        except Exception as error:  # noqa: BLE001 - how much is done is for people: no run ends because of it
            _log.debug("how much of a run is done is not known: %s", error)
            self._inputs = tuple(InputProgress(name) for name in self._input.measures)
            with self._changed:
                self._newest, self._is_closed = None, True
            self._set_counted()

    def _set_counted(self) -> None:
        with self._changed:
            self._is_counting = self._newest is not None
            self._changed.notify_all()

    def _next(self) -> tuple[Mapping[str, Any], float] | None:
        """Wait for a report; None once there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None or self._is_closed)
            newest, self._newest = self._newest, None
            return newest

    def _follow(self, progress: Mapping[str, Any], now: float) -> None:
        first = (self._first or progress).get("sources", ())
        for number, (start, source) in enumerate(zip(first, progress.get("sources", ()), strict=True)):
            part = self._part_of(number, source)
            if part is None or part.extent is None:
                continue
            ahead = partial(part.extent.ahead, logged=self._input.logged(number))
            if number not in part.at_start:
                part.at_start[number] = ahead(place_of(start, "startOffset"))
            part.now[number] = ahead(place_of(source, "endOffset"))
        self._count()
        samples = (*self._samples, (now, {each.name: each.done for each in self._inputs}))
        old = sum(then <= now - _RATE_SECONDS for then, _ in samples)
        self._samples = samples[max(old - 1, 0) :]

    def _part_of(self, number: int, source: Mapping[str, Any]) -> _Part | None:
        """The part that a source is: one that no other source is, if there are several, as of streams alike."""
        fitting = [part for part in self._parts if number in part.now or part.measure.is_of(source)]
        known = [part for part in fitting if number in part.now]
        return next(iter(known or [part for part in fitting if not part.now] or fitting), None)

    def _count(self) -> None:
        self._inputs = tuple(self._counted(name) for name in self._input.measures)

    def _counted(self, stream: str) -> InputProgress:
        parts = [part for part in self._parts if part.stream == stream]
        unit: Unit | None = parts[0].measure.unit if parts else None
        ahead = done = 0
        for part in parts:
            at_start = self._at_start(part)
            if at_start is None or None in part.now.values():
                return InputProgress(stream, unit)
            left = max((each for each in part.now.values() if each is not None), default=at_start)
            ahead, done = ahead + at_start, done + max(at_start - left, 0)
        return InputProgress(stream, unit, ahead if parts else None, done)

    def _at_start(self, part: _Part) -> int | None:
        """How much lay ahead of the source of which most did: a stream that is read twice is one input."""
        if part.extent is None or None in part.at_start.values():
            return None
        if part.at_start:
            return max(each for each in part.at_start.values() if each is not None)
        return part.extent.ahead(None, lambda _: ()) if self._input.is_new else None


def _extent(measure: Measure) -> Extent | None:
    try:
        return measure.take()
    except Exception as error:  # noqa: BLE001 - what a source does not say is not known, for whatever reason
        _log.debug("how much a source holds is not known: %s", error)
        return None
