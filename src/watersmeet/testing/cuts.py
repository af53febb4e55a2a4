"""Steps of a case in parts, for a query that takes rows as they come.

In real time nobody knows where one step of the query ends and the next begins: the rows of a stream may be taken before
those of another one, or one by one.  So a case is tried in the harness first, with each of its steps cut in several
ways.  What holds in all of them must hold in real time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.control_events import Event
from watersmeet.sql.statements import Query
from watersmeet.testing.case import Case
from watersmeet.testing.cells import Row
from watersmeet.testing.harness import Harness
from watersmeet.testing.rig import Rig, StepInput, StepOutcome
from watersmeet.testing.runner import MakeRig, run_case

Inputs = Mapping[str, StepInput]
Cut = Callable[[Inputs], Iterator[Inputs]]


def whole(inputs: Inputs) -> Iterator[Inputs]:
    """Yield all rows together."""
    yield inputs


def by_stream(inputs: Inputs) -> Iterator[Inputs]:
    """Yield the rows of each stream for themselves."""
    return ({name: rows} for name, rows in inputs.items())


def by_row(inputs: Inputs) -> Iterator[Inputs]:
    """Yield each row for itself, one stream after the other."""
    for name, rows in inputs.items():
        yield from ({name: row} for row in _single(rows))


def in_turn(inputs: Inputs) -> Iterator[Inputs]:
    """Yield each row for itself, the first of every stream first."""
    waiting = {name: list(_single(rows)) for name, rows in inputs.items()}
    while any(waiting.values()):
        yield from ({name: rows.pop(0)} for name, rows in waiting.items() if rows)


def by_stream_backwards(inputs: Inputs) -> Iterator[Inputs]:
    """Yield what ``by_stream`` does, the last stream first."""
    return by_stream(_backwards(inputs))


def by_row_backwards(inputs: Inputs) -> Iterator[Inputs]:
    """Yield what ``by_row`` does, the last stream first."""
    return by_row(_backwards(inputs))


def in_turn_backwards(inputs: Inputs) -> Iterator[Inputs]:
    """Yield what ``in_turn`` does, the last stream first."""
    return in_turn(_backwards(inputs))


#: Ways to feed a step, each with the ways in which a query may take what is fed so.
_TAKEN: Mapping[Cut, tuple[Cut, ...]] = {
    whole: (by_stream, by_row, in_turn, by_stream_backwards, by_row_backwards, in_turn_backwards),
    by_stream: (by_stream, by_row),
    by_stream_backwards: (by_stream_backwards, by_row_backwards),
}


class CutRig(Rig):
    """A rig to which each step is fed in parts; control events follow when all rows have been taken."""

    def __init__(self, rig: Rig, cut: Cut) -> None:
        self._rig = rig
        self._cut = cut
        super().__init__(rig.plan, rig.column_types)

    def restart(self) -> None:
        """Drop everything that is not durable."""
        self._rig.restart()

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Replace the rows of an external table."""
        self._rig.fill(table, rows)

    def step(self, inputs: Inputs, events: Sequence[Event] = ()) -> StepOutcome:
        """Feed the step's rows part by part, then the events; return what all of it emits."""
        outcome = StepOutcome()
        for part in [*self._cut(inputs), {}]:
            found = self._rig.step(part, () if part else events)
            outcome.changes += found.changes
            outcome.side += found.side
            outcome.counters = found.counters
        self.column_types = self._rig.column_types
        return outcome


def fed(make: MakeRig, cut: Cut) -> MakeRig:
    """Return a maker of rigs that are fed in parts."""

    def make_cut(streams: Mapping[str, StreamDef], query: Query) -> CutRig:
        return CutRig(make(streams, query), cut)

    return make_cut


def way_to_feed(case: Case) -> Cut | None:
    """Return how to feed the steps of a case so that it holds however a query takes them; None if there is no way."""
    return next(
        (cut for cut, taken in _TAKEN.items() if all(run_case(case, fed(Harness, each)) is None for each in taken)),
        None,
    )


def _backwards(inputs: Inputs) -> Inputs:
    return dict(reversed(list(inputs.items())))


def _single(rows: StepInput) -> Iterator[StepInput]:
    yield from (StepInput((row,)) for row in rows.rows)
    yield from (StepInput(raw=(record,)) for record in rows.raw)
