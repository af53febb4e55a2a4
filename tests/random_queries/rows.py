"""Random streams: their rows in the order of arrival, and the steps in which a query is fed.

A row arrives at most ``delay`` after its time, so that no row is late however the input is cut into steps.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

COLUMNS = {"id": "INT", "k": "STRING", "v": "INT", "ts": "BIGINT"}
NAMES = ("a", "b", "c", "d")

Row = tuple[int | None, str | None, int | None, int]


class Unit(Enum):
    """What event times count."""

    SECONDS = "s"
    ROWS = "row"


@dataclass(frozen=True)
class Stream:
    """Rows in the order of arrival, and the declared delay."""

    delay: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Streams:
    """All streams of an example, by name."""

    unit: Unit
    streams: Mapping[str, Stream]

    def sql(self) -> str:
        """CREATE STREAM for each."""
        columns = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
        return "".join(
            f"CREATE STREAM {name} ({columns}, WATERMARK FOR ts AS ts - {self._span(stream.delay)}) "
            f"WITH (event_time_unit = '{self.unit.value}');\n"
            for name, stream in self.streams.items()
        )

    def _span(self, length: int) -> str:
        return str(length) if self.unit is Unit.ROWS else f"INTERVAL '{length}' SECONDS"


@dataclass(frozen=True)
class Step:
    """One batch, and whether the process starts anew before it."""

    rows: Mapping[str, tuple[Row, ...]]
    restart: bool = False


@dataclass(frozen=True)
class Feed:
    """All steps, and whether the end of input comes with the last one or after it."""

    steps: tuple[Step, ...]
    ends_with_last: bool

    def arrived(self, stream: str) -> list[Row]:
        """All rows of a stream, in the order in which they were fed."""
        return [row for step in self.steps for row in step.rows.get(stream, ())]


@st.composite
def _stream(draw: st.DrawFn, span: int) -> Stream:
    delay = draw(st.sampled_from([0, 3, 10, 60]))
    row = st.tuples(
        st.sampled_from([1, 1, 1, 2, 3, None]),
        st.sampled_from(["x", "x", "y", "", "é", None]),
        st.sampled_from([0, 1, 2, 3, 5, None]),
        st.integers(0, span),
    )
    arrival = st.tuples(row, st.integers(0, delay), st.sampled_from([1, 1, 1, 1, 2]))
    least = draw(st.sampled_from([0, 3, 6, 9, 12]))
    drawn = draw(st.lists(arrival, min_size=least, max_size=14))
    drawn.sort(key=lambda each: each[0][3] + each[1])
    return Stream(delay, tuple(row for row, _, times in drawn for _ in range(times)))


@st.composite
def streams(draw: st.DrawFn) -> Streams:
    """Two to four streams of one unit: dense or sparse in time, in order or far out of it."""
    unit = draw(st.sampled_from([Unit.SECONDS, Unit.SECONDS, Unit.SECONDS, Unit.ROWS]))
    span = draw(st.sampled_from([3, 20, 20, 40, 80]))
    names = NAMES[: draw(st.integers(2, len(NAMES)))]
    return Streams(unit, {name: draw(_stream(span)) for name in names})


@st.composite
def feeds(draw: st.DrawFn, given: Streams) -> Feed:
    """The rows cut into steps. Within a step they come in any order: only the frontier before it makes a row late."""
    left = {name: list(stream.rows) for name, stream in given.streams.items()}
    count = draw(st.sampled_from([1, 2, 3, 5]))
    steps = []
    for number in range(1, count + 1):
        rows = {}
        for name, waiting in left.items():
            most = min(len(waiting), 2 * (len(given.streams[name].rows) // count + 1))
            size = len(waiting) if number == count else draw(st.integers(0, most))
            rows[name], left[name] = waiting[:size], waiting[size:]
        order = draw(st.integers(0, 3))
        if order:
            for batch in rows.values():
                random.Random(order).shuffle(batch)
        taken = {name: tuple(batch) for name, batch in rows.items() if batch}
        steps.append(Step(taken, restart=draw(st.sampled_from([False, False, True]))))
    return Feed(tuple(steps), ends_with_last=draw(st.booleans()))
