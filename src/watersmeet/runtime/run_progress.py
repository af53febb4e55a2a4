"""How much of a bounded or draining run is done: what its inputs held when it started, and what was read of that.

A source says what is there (``Extent``), and how much of it lies ahead of a place that Spark's progress reports.  What
a source does not say is not known, and then neither is how much of the run is done: no figure is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from watersmeet.settings.sizes import size_text

#: The place up to which a source was read, as Spark's progress has it; None where nothing was.
Place = Mapping[str, Any] | None
#: The names of the files that Spark's log of a source lists, up to one of its numbers.
Logged = Callable[[int], Collection[str]]


class Unit(StrEnum):
    """What an input is measured in."""

    BYTES = "bytes"
    RECORDS = "records"


class Extent(Protocol):
    """What a source held at one moment."""

    def ahead(self, place: Place, logged: Logged) -> int | None:
        """How much of it lies ahead of a place; None if that is not known."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How to measure a source, or a part of it: in which ``unit``, and whether one in Spark's progress ``is_of`` it.

    ``take`` asks what is there now.  It is called beside the running query, and may raise what prevents an answer.
    """

    unit: Unit
    is_of: Callable[[Mapping[str, Any]], bool]
    take: Callable[[], Extent]


@dataclass(frozen=True, slots=True)
class RunInput:
    """How to measure what a run reads: of each stream, its parts.

    ``logged`` gives Spark's log of the files of a source by its number.  ``is_new``: no batch was committed before.
    """

    measures: Mapping[str, Sequence[Measure]]
    logged: Callable[[int], Logged]
    is_new: bool


@dataclass(frozen=True, slots=True)
class InputProgress:
    """Of a stream: how much the run had ahead at its start (None: not known), and how much of that was read."""

    name: str
    unit: Unit | None = None
    ahead: int | None = None
    done: int = 0

    @property
    def text(self) -> str:
        """Both in words."""
        if self.ahead is None:
            return f"{self.name} not known"
        if self.unit is Unit.BYTES:
            return f"{self.name} {size_text(self.done)} of {size_text(self.ahead)}"
        return f"{self.name} {self.done:,} of {self.ahead:,} {self.unit}"


@dataclass(frozen=True, slots=True)
class Tasks:
    """How many of a batch's tasks have finished, of those that Spark has planned."""

    done: int
    planned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How much of a run is done, by what its batches have committed.

    ``tasks`` are those of the one batch that takes all there is, where no stream limits batches; None for other runs.
    ``remaining`` is how many seconds of reading are left at the rate of late, None if that is not known; ``is_over``
    says that the run has ended by itself.
    """

    inputs: tuple[InputProgress, ...]
    tasks: Tasks | None = None
    remaining: float | None = None
    is_over: bool = False

    @property
    def fraction(self) -> float | None:
        """The part of the run that is done, None if that is not known.

        It is that of the input of which the least was read, because the run ends with its last input.  While the one
        batch of a run works, it is the part of its tasks that have finished.
        """
        if self.is_over:
            return 1.0
        if self.tasks is not None:
            return self.tasks.done / self.tasks.planned if self.tasks.planned else 0.0
        parts = []
        for each in self.inputs:
            if each.ahead is None:
                return None
            parts.append(each.done / each.ahead if each.ahead else 1.0)
        return min(parts, default=None)

    @property
    def percent(self) -> str:
        """The fraction in words, rounded down: 100% only if all is done; empty if it is not known."""
        return "" if self.fraction is None else f"{int(self.fraction * 100)}%"

    @property
    def text(self) -> str:
        """All of it in words: how much is done, when it ends, and what was read; not of inputs that had nothing."""
        done = f"{self.percent} done" if self.percent else "how much is done is not known"
        left = f", about {duration_text(self.remaining)} left" if self.remaining and self.remaining >= 1 else ""
        tasks = f"{self.tasks.done:,} of {self.tasks.planned:,} tasks of the one batch" if self.tasks else ""
        details = ", ".join(filter(None, [tasks, *(each.text for each in self.inputs if each.ahead != 0)]))
        return f"{done}{left}{': ' if details else ''}{details}"


def duration_text(seconds: float) -> str:
    """A length of time in one or two units, for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
