"""Runs the cases of the test notation, in the harness or on Spark, and reports the differences."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.engine.control_events import Event, EventKind
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
    """What one step feeds, by stream name, and the rows that ``tables`` have from then on.

    ``restart`` asks for a restart from the checkpoint before the step; ``line`` is the line of the step.
    """

    inputs: Mapping[str, StepInput]
    events: tuple[Event, ...]
    restart: bool
    line: int
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """The line in the file where a case failed, and a report in plain text."""

    line: int
    report: str


def run_case(case: Case, make_rig: MakeRig = Harness) -> Failure | None:
    """Run all steps of a case; return the first difference, or None if there is none."""
    if case.error is not None:
        return _run_error(case.error, case, make_rig)
    try:
        streams, query = load_script(case.script_in_place)
        return _run_steps(case, streams, make_rig(streams, query))
    except WatersmeetError as error:
        return failure_of(case, error)


def crash(case: Case, error: Exception) -> Failure:
    """The failure of a case that ended with an error that is not the user's: what it says, and where it was raised."""
    where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return Failure(case.line, f"crashed: {type(error).__name__}: {error}\n{where}")


def failure_of(case: Case, error: WatersmeetError) -> Failure:
    """Return the failure for an unexpected error, at its line in the notation or the SQL, or else at the title."""
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
            turn = turns.send(outcome)  # type: ignore[arg-type]  # the first call sends None
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
    """Yield what to feed, step by step; the caller sends the outcome of each turn.  Returns the failure, if any.

    A caller can interleave several cases, so many queries can share one micro-batch.  Raises NotationError for steps
    that do not fit the script: an unknown stream, or rows that do not fit its columns.
    """
    names = _Names(streams, query)
    emitted: list[tuple[int, Row]] = []
    outcome = StepOutcome()
    quarantined: list[str] = []  # a row may be missing because of them, also in a later step
    for step in case.steps:
        restart = any(control.kind is ControlKind.RESTART for control in step.controls)
        tables = {block.stream: _table(block, names) for block in step.inputs if block.is_table}
        outcome = yield Turn(_inputs(step, names), tuple(_events(step, names)), restart, step.line, tables)
        emitted += outcome.changes
        quarantined += [f"{row['kind']} ({row['source']}): {row['reason']}" for row in outcome.side]
        if deleted := negative_rows((weight, query.without_delta(row)) for weight, row in emitted):
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
                return Failure(step.expected.line, "\n".join([report, *quarantined, *_late(outcome, query)]))
    if case.compare is Compare.TOTAL:
        last = case.steps[-1].expected
        report = diff_step(last, emitted, query.column_types, ordered=query.is_ordered)
        if report is not None:
            return Failure(last.line, "\n".join([report, *quarantined, *_late(outcome, query)]))
    return None


def _late(outcome: StepOutcome, query: PlannedQuery) -> Iterator[str]:
    """Yield how many rows were late so far: results may be missing because of them."""
    for part in query.plan.streams:
        if late := outcome.count("late", (part.input.alias,)):
            yield f"late so far: {late} of {part.input.alias} ({part.input.stream.name})"


@dataclass(frozen=True, slots=True)
class _Names:
    """Resolves the names of streams in a case."""

    streams: Mapping[str, StreamDef]
    query: PlannedQuery

    def inputs_of(self, name: str, line: int) -> tuple[str, ...]:
        """Return the aliases under which the query reads the stream."""
        inputs = self.query.inputs_of(name)
        if not inputs:
            read = [stream.name for stream in self.streams.values() if self.query.inputs_of(stream.name)]
            missing = "the script creates no" if name.lower() not in self.streams else "the query does not read the"
            hint = did_you_mean(name, read)
            if name.lower() in _CONTROLS:
                hint = f"controls are lower case: >>> {name.lower()}"
            raise NotationError(f"{missing} stream {name}", hint=hint, line=line)
        return inputs

    def stream(self, name: str, line: int) -> StreamDef:
        """Return the stream; NotationError if the query does not read it."""
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
            f"the query does not look up the table {block.stream}",
            hint=did_you_mean(block.stream, known),
            line=block.line,
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
            f"a row starts with a sign, but {stream.name} only appends rows",
            hint="leave it out, or put a string that starts with a sign in quotes",
        )
    if stream.column(TP_DELTA) is not None:
        raise NotationError(
            f"a row starts with a sign, but {stream.name} declares {TP_DELTA}",
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
                yield Event(EventKind.ADVANCE, inputs, frontier=_internal_time(control, names))
            case ControlKind.RESTART:
                pass


def _internal_time(control: Control, names: _Names) -> int:
    """Return the internal event time of a cell written for the stream's event-time column."""
    stream = names.stream(control.stream, control.line)
    column = stream.column(stream.time_column)
    with at_line(control.line):
        value = parse_cell(control.value, column.type if column else "TIMESTAMP")
    if isinstance(value, datetime):
        instant = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (instant - EPOCH) // timedelta(microseconds=1)
    assert isinstance(value, int)  # the only other type of event times
    return value * stream.time_unit.scale


def _counts(step: Step, outcome: StepOutcome, names: _Names) -> dict[tuple[str, str], int]:
    """Return the counters that the step checks; if a query reads a stream twice, those of one of its inputs."""
    return {
        (what, stream): max(outcome.count(what, (alias,)) for alias in names.inputs_of(stream, step.expected.line))
        for what, stream in step.expected.counts
    }
