"""Running the cases of the test notation, in the harness or on Spark, and telling what differs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.engine.events import Event, EventKind
from watersmeet.errors import WatersmeetError, did_you_mean
from watersmeet.sql.statements import Query
from watersmeet.testing.case import Case, Compare, Control, ControlKind, InputBlock, NotationError, Step, at_line
from watersmeet.testing.cells import EPOCH, Row, format_row, parse_cell, parse_row
from watersmeet.testing.diff import diff_error, diff_step, negative_rows
from watersmeet.testing.harness import Harness
from watersmeet.testing.rig import PlannedQuery, Rig, StepInput, StepOutcome
from watersmeet.testing.script import load_script

_CONTROLS = {kind.value for kind in ControlKind}

MakeRig = Callable[[Mapping[str, StreamDef], Query], Rig]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one step feeds, by stream name, and what ``tables`` hold from it on.

    ``restart``: from the checkpoint, before it; ``line`` is the step's.
    """

    inputs: Mapping[str, StepInput]
    events: tuple[Event, ...]
    restart: bool
    line: int
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Where a case went wrong: the line in its file and a report in plain text."""

    line: int
    report: str


def run_case(case: Case, make_rig: MakeRig = Harness) -> Failure | None:
    """Run all steps of a case; None where everything is as expected, else the first difference."""
    if case.error is not None:
        return _run_error(case.error, case, make_rig)
    try:
        streams, query = load_script(case.script_in_place)
        return _run_steps(case, streams, make_rig(streams, query))
    except WatersmeetError as error:
        return failure_of(case, error)


def failure_of(case: Case, error: WatersmeetError) -> Failure:
    """An error that the case does not expect, at its line: of the notation, else of the SQL, else of the title."""
    line = error.line if isinstance(error, NotationError) else error.position.line if error.position else None
    return Failure(line or case.line, str(error))


def _run_error(expected: tuple[str, ...], case: Case, make_rig: MakeRig) -> Failure | None:
    rendered = None
    try:
        make_rig(*load_script(case.script))
    except WatersmeetError as error:
        rendered = str(error)
    report = diff_error(expected, rendered)
    return Failure(case.line, report) if report is not None else None


def _run_steps(case: Case, streams: Mapping[str, StreamDef], rig: Rig) -> Failure | None:
    turns = case_turns(case, streams, rig)
    outcome: StepOutcome | None = None
    while True:
        try:
            turn = turns.send(outcome)  # type: ignore[arg-type]  # the first one takes None
        except StopIteration as end:
            failure: Failure | None = end.value
            return failure
        if turn.restart:
            rig.restart()
        try:
            for table, rows in turn.tables.items():
                rig.fill(table, rows)
            outcome = rig.step(turn.inputs, turn.events)
        except WatersmeetError as error:
            return Failure(turn.line, str(error))


def case_turns(
    case: Case, streams: Mapping[str, StreamDef], query: PlannedQuery
) -> Generator[Turn, StepOutcome, Failure | None]:
    """What to feed step by step; each turn wants to be sent its outcome, and the end says what went wrong.

    Whoever drives it may drive other cases in between: many queries can share one micro-batch.
    Raises NotationError for what does not fit the script: streams that are not there, rows that do not fit.
    """
    names = _Names(streams, query)
    seen: list[tuple[int, Row]] = []
    outcome = StepOutcome()
    aside: list[str] = []  # may be why a row is missing, now or in a later step
    for step in case.steps:
        restart = any(control.kind is ControlKind.RESTART for control in step.controls)
        tables = {block.stream: _table(block, names) for block in step.inputs if block.is_table}
        outcome = yield Turn(_inputs(step, names), tuple(_events(step, names)), restart, step.line, tables)
        seen += outcome.changes
        aside += [f"set aside as {row['kind']} ({row['source']}): {row['reason']}" for row in outcome.side]
        if deleted := negative_rows((weight, query.without_delta(row)) for weight, row in seen):
            rows = "\n".join(format_row(row) for row in deleted)
            return Failure(step.expected.line, f"deleted more often than inserted:\n{rows}")
        if case.compare is Compare.STEPS:
            report = diff_step(
                step.expected,
                outcome.changes,
                query.column_types,
                ordered=query.is_ordered,
                counts=_counts(step, outcome, names),
                state=outcome.count("state_rows"),
            )
            if report is not None:
                return Failure(step.expected.line, "\n".join([report, *aside, *_late(outcome, query)]))
    if case.compare is Compare.TOTAL:
        last = case.steps[-1].expected
        report = diff_step(last, seen, query.column_types, ordered=query.is_ordered)
        return Failure(last.line, "\n".join([report, *aside, *_late(outcome, query)])) if report is not None else None
    return None


def _late(outcome: StepOutcome, query: PlannedQuery) -> Iterator[str]:
    """How many rows were late so far, which is why results may be missing."""
    for part in query.plan.inputs:
        if late := outcome.count("late", (part.input.alias,)):
            yield f"late so far: {late} of {part.input.alias} ({part.input.stream.name})"


@dataclass(frozen=True, slots=True)
class _Names:
    """What the names of streams in a case stand for."""

    streams: Mapping[str, StreamDef]
    query: PlannedQuery

    def inputs_of(self, name: str, line: int) -> tuple[str, ...]:
        """The aliases under which the query reads a stream of that name."""
        inputs = self.query.inputs_of(name)
        if not inputs:
            read = [stream.name for stream in self.streams.values() if self.query.inputs_of(stream.name)]
            missing = "the script creates no" if name.lower() not in self.streams else "the query does not read the"
            hint = did_you_mean(name, read)
            if name.lower() in _CONTROLS:
                hint = f"a control is written in small letters: >>> {name.lower()}"
            raise NotationError(f"{missing} stream {name}", hint=hint, line=line)
        return inputs

    def stream(self, name: str, line: int) -> StreamDef:
        """The stream of that name, which the query reads."""
        self.inputs_of(name, line)
        return self.streams[name.lower()]


def _inputs(step: Step, names: _Names) -> dict[str, StepInput]:
    rows: dict[str, list[Row]] = {}
    raw: dict[str, list[str]] = {}
    for block in step.inputs:
        if block.is_table:
            continue
        stream = names.stream(block.stream, block.line)
        rows.setdefault(stream.name, []).extend(_rows(block, stream))
        raw.setdefault(stream.name, []).extend(block.raw)
    return {name: StepInput(tuple(rows[name]), tuple(raw[name])) for name in rows}


def _table(block: InputBlock, names: _Names) -> tuple[Row, ...]:
    table = names.streams.get(block.stream.lower())
    if table is None or not names.query.looks_up(table.name):
        known = [each.name for each in names.streams.values() if names.query.looks_up(each.name)]
        raise NotationError(
            f"the query looks up in no table {block.stream}", hint=did_you_mean(block.stream, known), line=block.line
        )
    return tuple(_rows(block, table))


def _rows(block: InputBlock, stream: StreamDef) -> Iterator[Row]:
    types = [column.type for column in stream.columns]
    for i, cells in enumerate(block.cells):
        delta = block.deltas[i] if block.deltas else None
        with at_line(block.lines[i]):
            if delta is not None:
                _check_sign(stream)
            row = parse_row(cells, types)
            yield row if delta is None else (*row, delta)


def _check_sign(stream: StreamDef) -> None:
    if not stream.changes:
        raise NotationError(
            f"a row begins with a sign, but {stream.name} only appends rows",
            hint="leave it out; a text that begins so stands in quotes",
        )
    if stream.column(TP_DELTA) is not None:
        raise NotationError(
            f"a row begins with a sign, but {stream.name} declares {TP_DELTA}",
            hint=f"write it in the cell of {TP_DELTA}",
        )


def _events(step: Step, names: _Names) -> Iterator[Event]:
    for control in step.controls:
        match control.kind:
            case ControlKind.END:
                yield Event(EventKind.END)
            case ControlKind.IDLE:
                yield Event(EventKind.IDLE, names.inputs_of(control.stream, control.line))
            case ControlKind.ADVANCE:
                inputs = names.inputs_of(control.stream, control.line)
                yield Event(EventKind.ADVANCE, inputs, frontier=_on_axis(control, names))
            case ControlKind.RESTART:
                pass


def _on_axis(control: Control, names: _Names) -> int:
    """A time written as a cell of the stream's event-time column, on the operators' axis."""
    stream = names.stream(control.stream, control.line)
    column = stream.column(stream.time_column)
    with at_line(control.line):
        value = parse_cell(control.value, column.type if column else "TIMESTAMP")
    if isinstance(value, datetime):
        instant = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (instant - EPOCH) // timedelta(microseconds=1)
    assert isinstance(value, int)  # an event time is nothing else
    return value * stream.time_unit.scale


def _counts(step: Step, outcome: StepOutcome, names: _Names) -> dict[tuple[str, str], int]:
    """The counters that are checked; where a query reads a stream twice, what one of its inputs counted."""
    return {
        (what, stream): max(outcome.count(what, (alias,)) for alias in names.inputs_of(stream, step.expected.line))
        for what, stream in step.expected.counts
    }
