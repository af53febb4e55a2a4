"""Running the cases of the test notation, in the harness or on Spark, and telling what differs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from watersmeet.catalog import StreamDef
from watersmeet.engine.events import Event, EventKind
from watersmeet.errors import WatersmeetError
from watersmeet.plan.times import TimeUnit
from watersmeet.sql.statements import Query
from watersmeet.testing.cells import Row, parse_cell, parse_row
from watersmeet.testing.diff import diff_step, negative_rows
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script
from watersmeet.testing.notation import Case, Compare, Control, ControlKind, NotationError, Step


class Described(Protocol):
    """What a case must know of its query: types of result columns, whether it is ordered, aliases of a stream."""

    @property
    def column_types(self) -> list[str]:
        """Spark type names of the result."""

    @property
    def is_ordered(self) -> bool:
        """Whether the order of rows counts."""

    def inputs_of(self, stream: str) -> tuple[str, ...]:
        """The aliases under which the query reads a stream."""


class Bench(Described, Protocol):
    """Something that runs one query step by step: the harness, or Spark."""

    def restart(self) -> None:
        """Go on from what is durable."""

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed one batch."""


MakeBench = Callable[[Mapping[str, StreamDef], Query], Bench]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one step feeds, by stream name; ``restart``: from the checkpoint, before it."""

    inputs: Mapping[str, StepInput]
    events: tuple[Event, ...]
    restart: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """Where a case went wrong: the line in its file and a report in plain text."""

    line: int
    report: str


def run_case(case: Case, make_bench: MakeBench = Harness) -> Failure | None:
    """Run all steps of a case; None where everything is as expected, else the first difference."""
    if case.error is not None:
        return _run_error(case, make_bench)
    try:
        streams, query = load_script(case.script)
        return _run_steps(case, streams, make_bench(streams, query))
    except WatersmeetError as error:
        return Failure(case.line, str(error))


def _run_error(case: Case, make_bench: MakeBench) -> Failure | None:
    try:
        make_bench(*load_script(case.script))
    except WatersmeetError as error:
        text = str(error)
        at = 0
        for line in case.error or ():
            found = text.find(line, at)
            if found < 0:
                return Failure(case.line, f"the error does not say {line!r}:\n{text}")
            at = found + len(line)
        return None
    return Failure(case.line, f"no error, but this was expected:\n{chr(10).join(case.error or ())}")


def _run_steps(case: Case, streams: Mapping[str, StreamDef], bench: Bench) -> Failure | None:
    turns = case_turns(case, streams, bench)
    outcome: StepOutcome | None = None
    while True:
        try:
            turn = turns.send(outcome)  # type: ignore[arg-type]  # the first one takes None
        except StopIteration as end:
            failure: Failure | None = end.value
            return failure
        if turn.restart:
            bench.restart()
        outcome = bench.step(turn.inputs, turn.events)


def case_turns(
    case: Case, streams: Mapping[str, StreamDef], described: Described
) -> Generator[Turn, StepOutcome, Failure | None]:
    """What to feed step by step; each turn wants to be sent its outcome, and the end says what went wrong.

    Whoever drives it may drive other cases in between: many queries can share one micro-batch.
    """
    seen: list[tuple[int, Row]] = []
    for step in case.steps:
        restart = any(control.kind is ControlKind.RESTART for control in step.controls)
        outcome = yield Turn(_inputs(step, streams), tuple(_events(step.controls, streams, described)), restart)
        seen += outcome.changes
        if deleted := negative_rows(seen):
            return Failure(step.expected.line, f"deleted more often than inserted: {deleted}")
        if case.compare is Compare.STEPS:
            report = diff_step(
                step.expected,
                outcome.changes,
                described.column_types,
                ordered=described.is_ordered,
                late=_counts("late", outcome, step.expected.late, described),
                quarantined=_counts("quarantined", outcome, step.expected.quarantined, described),
                filtered=_counts("filtered", outcome, step.expected.filtered, described),
                state=outcome.count("state_rows"),
            )
            if report is not None:
                return Failure(step.expected.line, report)
    if case.compare is Compare.TOTAL:
        last = case.steps[-1].expected
        report = diff_step(last, seen, described.column_types, ordered=described.is_ordered)
        return Failure(last.line, report) if report is not None else None
    return None


def _inputs(step: Step, streams: Mapping[str, StreamDef]) -> dict[str, StepInput]:
    rows: dict[str, list[Row]] = {}
    raw: dict[str, list[str]] = {}
    for block in step.inputs:
        stream = streams.get(block.stream.lower())
        if stream is None:
            raise NotationError(f"line {block.line}: the script creates no stream {block.stream}")
        types = [column.type for column in stream.columns]
        rows.setdefault(stream.name, []).extend(parse_row(cells, types) for cells in block.cells)
        raw.setdefault(stream.name, []).extend(block.raw)
    return {name: StepInput(tuple(rows[name]), tuple(raw[name])) for name in rows}


def _events(controls: Sequence[Control], streams: Mapping[str, StreamDef], bench: Described) -> Iterator[Event]:
    for control in controls:
        match control.kind:
            case ControlKind.END:
                yield Event(EventKind.END)
            case ControlKind.IDLE:
                yield Event(EventKind.IDLE, bench.inputs_of(control.stream or ""))
            case ControlKind.ADVANCE:
                stream = streams[(control.stream or "").lower()]
                yield Event(EventKind.ADVANCE, bench.inputs_of(stream.name), frontier=_on_axis(control.value, stream))
            case ControlKind.RESTART:
                pass


def _on_axis(text: str | None, stream: StreamDef) -> int:
    """A time written as a cell of the stream's event-time column, on the operators' axis."""
    column = stream.column(stream.time_column)
    value = parse_cell(text, column.type if column else "TIMESTAMP")
    if stream.time_unit in (TimeUnit.TIMESTAMP, TimeUnit.TIMESTAMP_NTZ):
        return int(value.timestamp() * 1_000_000)  # type: ignore[union-attr]
    return int(value) * stream.time_unit.scale  # type: ignore[arg-type]


def _counts(what: str, outcome: StepOutcome, wanted: Mapping[str, int], bench: Described) -> dict[str, int]:
    """A counter by stream; where a query reads a stream twice, what one of its inputs counted."""
    return {
        stream: max((outcome.count(what, (alias,)) for alias in bench.inputs_of(stream)), default=0)
        for stream in wanted
    }
