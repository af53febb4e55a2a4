"""Random streams: their rows in the order of arrival, and the steps in which a query is fed.

A row arrives at most ``delay`` after its time, so that no row is late however the input is cut into steps. Some streams
change: their rows replace each other by primary key, and may say that a key has no row any more.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

COLUMNS = {"id": "INT", "k": "STRING", "v": "INT", "ts": "BIGINT"}
NAMES = ("a", "b", "c", "d")
KEYS = (("id",), ("id", "k"), ("k",))  # primary keys of streams that change

Row = tuple[int | None, str | None, int | None, int]
Change = tuple[int | None, str | None, int | None, int, int]  # a row, and +1 or -1


class Unit(Enum):
    """What event times count."""

    SECONDS = "s"
    ROWS = "row"


@dataclass(frozen=True)
class Stream:
    """Changes in the order of arrival, the declared delay, and the primary key of a stream whose rows change."""

    delay: int
    changes: tuple[Change, ...]
    key: tuple[str, ...] = ()

    def holding(self, changes: Iterable[Change]) -> list[tuple[int, Row]]:
        """The rows that hold after some changes, each with its place among them."""
        placed = list(enumerate(changes))
        if not self.key:
            return [(seq, change[:4]) for seq, change in placed]
        parts = [list(COLUMNS).index(name) for name in self.key]
        placed.sort(key=lambda each: each[1][3])  # of one time the later in the source comes last
        newest = {tuple(change[i] for i in parts): (seq, change) for seq, change in placed}
        return [(seq, change[:4]) for seq, change in newest.values() if change[4] > 0]


@dataclass(frozen=True)
class Streams:
    """All streams of an example, by name."""

    unit: Unit
    streams: Mapping[str, Stream]

    def sql(self) -> str:
        """CREATE STREAM for each."""
        columns = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
        return "".join(
            f"CREATE {'MUTABLE ' if stream.key else ''}STREAM {name} "
            f"({columns}, WATERMARK FOR ts AS ts - {self._span(stream.delay)}){_keyed(stream)} "
            f"WITH (event_time_unit = '{self.unit.value}');\n"
            for name, stream in self.streams.items()
        )

    @property
    def appended(self) -> list[str]:
        """The names of those whose rows never change."""
        return sorted(name for name, stream in self.streams.items() if not stream.key)

    def _span(self, length: int) -> str:
        return str(length) if self.unit is Unit.ROWS else f"INTERVAL '{length}' SECONDS"


def _keyed(stream: Stream) -> str:
    return f" PRIMARY KEY ({', '.join(stream.key)})" if stream.key else ""


@dataclass(frozen=True)
class Step:
    """One batch, and whether the process starts anew before it."""

    changes: Mapping[str, tuple[Change, ...]]
    restart: bool = False


@dataclass(frozen=True)
class Feed:
    """All steps, and whether the end of input comes with the last one or after it."""

    steps: tuple[Step, ...]
    ends_with_last: bool

    def arrived(self, stream: str, steps: int | None = None) -> list[Change]:
        """All changes of a stream (in the first steps), in the order in which they were fed."""
        return [change for step in self.steps[:steps] for change in step.changes.get(stream, ())]

    def step_of_each(self, stream: str) -> list[int]:
        """The number of the step, from 1, in which each change of a stream was fed."""
        return [number for number, step in enumerate(self.steps, 1) for _ in step.changes.get(stream, ())]


@st.composite
def _stream(draw: st.DrawFn, span: int, *, changing: bool) -> Stream:
    delay = draw(st.sampled_from([0, 3, 10, 60]))
    key = draw(st.sampled_from(KEYS)) if changing else ()
    change = st.tuples(
        st.sampled_from([1, 1, 1, 2, 3, *([] if "id" in key else [None])]),
        st.sampled_from(["x", "x", "y", "", "é", *([] if "k" in key else [None])]),
        st.sampled_from([0, 1, 2, 3, 5, None]),
        st.integers(0, span),
        st.sampled_from([1, 1, 1, -1]) if changing else st.just(1),
    )
    arrival = st.tuples(change, st.integers(0, delay), st.sampled_from([1, 1, 1, 1, 2]))
    least = draw(st.sampled_from([0, 3, 6, 9, 12]))
    drawn = draw(st.lists(arrival, min_size=least, max_size=14))
    drawn.sort(key=lambda each: each[0][3] + each[1])
    return Stream(delay, tuple(change for change, _, times in drawn for _ in range(times)), key)


@st.composite
def streams(draw: st.DrawFn) -> Streams:
    """Two to four streams of one unit: dense or sparse in time, in order or far out of it; in some, streams change."""
    unit = draw(st.sampled_from([Unit.SECONDS, Unit.SECONDS, Unit.SECONDS, Unit.ROWS]))
    span = draw(st.sampled_from([3, 20, 20, 40, 80]))
    names = NAMES[: draw(st.integers(2, len(NAMES)))]
    changing = draw(st.sampled_from([(), (), (), names, names[:1], names[1:]]))
    return Streams(unit, {name: draw(_stream(span, changing=name in changing)) for name in names})


@st.composite
def feeds(draw: st.DrawFn, given: Streams, counts: Sequence[int] = (1, 2, 3, 5)) -> Feed:
    """The rows cut into steps, as many as one of ``counts``.

    Within a step they come in any order: only the frontier before it makes a row late.
    """
    left = {name: list(stream.changes) for name, stream in given.streams.items()}
    count = draw(st.sampled_from(counts))
    steps = []
    for number in range(1, count + 1):
        changes = {}
        for name, waiting in left.items():
            most = min(len(waiting), 2 * (len(given.streams[name].changes) // count + 1))
            size = len(waiting) if number == count else draw(st.integers(0, most))
            changes[name], left[name] = waiting[:size], waiting[size:]
        order = draw(st.integers(0, 3))
        if order:
            for batch in changes.values():
                random.Random(order).shuffle(batch)
        taken = {name: tuple(batch) for name, batch in changes.items() if batch}
        steps.append(Step(taken, restart=draw(st.sampled_from([False, False, True]))))
    return Feed(tuple(steps), ends_with_last=draw(st.booleans()))
