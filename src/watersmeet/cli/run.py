"""``watersmeet run``: runs an SQL script, reports its progress, and accounts for every row at the end."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.interrupt import Interrupt, interruptible
from watersmeet.cli.live import View
from watersmeet.cli.observers import LogFormat, LogFormatOption, Observers, Otel, Ui, UiAddress
from watersmeet.cli.parameters import (
    DEFAULT_WORKSPACE,
    STANDARD_INPUT,
    Master,
    Packages,
    UsageError,
    ViewOption,
    Workspace,
    WorkspaceName,
    location,
    named_place,
    read_script,
)
from watersmeet.cli.restarts import DEFAULT_RESTARTS, require_repeatable
from watersmeet.cli.row_formats import RowFormat, RowFormatOption, RowWriter
from watersmeet.cli.state import queries_folder
from watersmeet.cli.supervised import reporting, watch
from watersmeet.cli.supervisor import supervise
from watersmeet.errors import ConfigError, WatersmeetError

if TYPE_CHECKING:
    from watersmeet.cli.progress import Screen
    from watersmeet.runtime.query import RunningQuery
    from watersmeet.runtime.query_mode import QueryMode
    from watersmeet.session.results import Result
    from watersmeet.session.session import Session
    from watersmeet.sql.statements import Statement

_LOOK_SECONDS = 0.2
_NO_END = "a query in real time has no end: --bounded and --drain are for micro-batches"

Script = Annotated[str, typer.Argument(metavar="FILE", help="A file of SQL statements, or - for standard input.")]
Bounded = Annotated[
    bool, typer.Option("--bounded", help="Process the rows available now as the whole input, emit final results, end.")
]
Drain = Annotated[bool, typer.Option("--drain", help="Process the rows available now and end; a later run continues.")]
RealTime = Annotated[
    bool,
    typer.Option("--real-time", help="Emit results row by row, within milliseconds; streams come from Kafka."),
]
RestartOnFailure = Annotated[
    bool,
    typer.Option(
        "--restart-on-failure", help="Start the job again after a failure that may pass, for unattended jobs."
    ),
]
MaxRestarts = Annotated[
    int | None,
    typer.Option(
        "--max-restarts",
        metavar="N",
        min=1,
        help=f"How many restarts may follow each other.  [default: {DEFAULT_RESTARTS}]",
    ),
]
CheckpointFolder = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="DIR", help="Folder or URI for the state and progress of queries."),
]


def run(
    script: Script,
    bounded: Bounded = False,
    drain: Drain = False,
    real_time: RealTime = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    checkpoint: CheckpointFolder = None,
    packages: Packages = None,
    master: Master = None,
    view: ViewOption = View.AUTO,
    format: RowFormatOption = RowFormat.TABLE,
    restart_on_failure: RestartOnFailure = False,
    max_restarts: MaxRestarts = None,
    ui: Ui = False,
    ui_address: UiAddress = None,
    otel: Otel = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run the statements of a file; queries run until Ctrl-C, or to the end of input with --bounded or --drain."""
    observers = Observers(ui=ui, ui_address=ui_address, otel=otel, log_format=log_format)
    with observers.standard_error():
        _check_usage(bounded=bounded, drain=drain, real_time=real_time, checkpoint=checkpoint)
        if max_restarts is not None and not restart_on_failure:
            raise UsageError("--max-restarts is for --restart-on-failure")
        if format is not RowFormat.TABLE and view is View.TABLE:
            raise UsageError(f"--view table and --format {format.value} exclude each other")
        observers.check()
        text = read_script(script)
        written = None if format is RowFormat.TABLE else RowWriter(format)

        from watersmeet.sql.parse import parse

        statements = parse(text)  # reports syntax errors before Spark starts
        if not statements:
            raise ConfigError(f"there is no statement in {script}")
        _refuse_end_of_real_time(statements, bounded=bounded, drain=drain)
        mode, place = _mode(bounded=bounded, drain=drain), named_place(workspace)
        if show_states(statements, queries_folder(checkpoint, workspace), written):
            return
        words = resume_words(script, mode, workspace, checkpoint, packages or (), master, view, real_time=real_time)
        words += ["--format", format.value] if written else []
        words += observers.words
        if restart_on_failure:
            require_repeatable(statements, bounded=bounded)
            given = text if script == STANDARD_INPUT else None
            raise typer.Exit(supervise(words, given, max_restarts or DEFAULT_RESTARTS))
        _run(
            text, mode, place, checkpoint, packages or (), master, view, written, observers, words, real_time=real_time
        )


def _check_usage(*, bounded: bool, drain: bool, real_time: bool, checkpoint: str | None) -> None:
    if bounded and drain:
        raise UsageError("--bounded and --drain exclude each other", hint="--drain keeps the query resumable")
    if real_time and (bounded or drain):
        raise UsageError(_NO_END)
    if checkpoint == "":
        raise UsageError("--checkpoint names no folder")


def _refuse_end_of_real_time(statements: Sequence[Statement], *, bounded: bool, drain: bool) -> None:
    """The same as ``_check_usage`` for a mode in SETTINGS; said before Spark starts."""
    if bounded or drain:
        from watersmeet.session.modes import runs_in_real_time

        if runs_in_real_time(statements):
            raise UsageError(_NO_END, hint="leave out mode = 'real_time' in SETTINGS, or these options")


def _run(
    text: str,
    mode: QueryMode,
    place: WorkspaceName,
    checkpoint: str | None,
    packages: Sequence[str],
    master: str | None,
    view: View,
    written: RowWriter | None,
    observers: Observers,
    words: Sequence[str],
    *,
    real_time: bool,
) -> None:
    """Run a script on Spark; ``words`` are the arguments that run it again."""
    from watersmeet.cli.spark import session_for
    from watersmeet.runtime.query_mode import QueryMode

    queries: list[RunningQuery] = []
    interrupt = Interrupt()
    try:
        is_bounded = mode is QueryMode.BOUNDED
        with (
            reporting(queries),
            session_for(text, place, packages, master, bounded=is_bounded, real_time=real_time) as session,
            interruptible(interrupt),
        ):
            observers.open(session)
            try:
                with observers.screen(view, draws=written is None) as shown:
                    folder = checkpoint and location(checkpoint)
                    follow(session, text, mode, folder, queries, shown, interrupt, written, real_time=real_time)
            finally:
                observers.conclude(queries)
    except WatersmeetError:
        if not interrupt.ends_spark:
            raise
    if interrupt.asked:
        print_interrupted(queries, resume_command(words), resumable=STANDARD_INPUT not in words[1:2])
        raise typer.Exit(interrupt.exit_code)


def _mode(*, bounded: bool, drain: bool) -> QueryMode:
    from watersmeet.runtime.query_mode import QueryMode

    return QueryMode.BOUNDED if bounded else QueryMode.DRAIN if drain else QueryMode.CONTINUOUS


def follow(
    session: Session,
    text: str,
    mode: QueryMode,
    checkpoint: str | None,
    queries: list[RunningQuery],
    shown: Screen,
    interrupt: Interrupt,
    written: RowWriter | None = None,
    *,
    side_by_side: bool = False,
    real_time: bool = False,
) -> None:
    """Execute the statements and wait for their queries, which are added to ``queries`` as they start.

    Results are ``written``, else ``shown``.

    In a bounded or draining run each query ends before the next statement, which may read its rows, unless queries are
    to run ``side_by_side``.  Raises the error of the first query that fails.  All queries have stopped on return.
    """
    from watersmeet.runtime.query_mode import QueryMode
    from watersmeet.session.results import Started
    from watersmeet.sql.parse import parse

    results = session.run(text, mode=mode, checkpoint=checkpoint, real_time=real_time)
    try:
        for statement in parse(text):
            session.show = shown.show_of(statement) if written is None else written.changes
            result = next(results)
            show(result, interrupt, written)
            if isinstance(result, Started):
                queries.append(result.query)
                if mode is not QueryMode.CONTINUOUS and not side_by_side:
                    wait_for(queries, shown, interrupt)
            if interrupt.asked:
                return
        wait_for(queries, shown, interrupt)
    finally:
        for query in queries:
            query.stop()


def show_states(statements: Sequence[Statement], folder: str, written: RowWriter | None = None) -> bool:
    """Carry out SELECTs over state(…) without Spark, if the statements are nothing else; say whether they are."""
    from watersmeet.sql.statements import SelectState

    found = [statement for statement in statements if isinstance(statement, SelectState)]
    if len(found) < len(statements):
        return False
    from watersmeet.cli.rows import show_table
    from watersmeet.runtime.inspection.selecting import select_state

    for statement in found:
        rows = select_state(statement.query, folder)
        (show_table if written is None else written.rows)(rows.columns, rows.rows())
    return True


def wait_for(queries: list[RunningQuery], shown: Screen, interrupt: Interrupt) -> None:
    """Wait until all queries have ended, one has failed (its error is raised), or a stop is requested."""
    running = list(queries)
    while running and not interrupt.asked:
        running = [query for query in running if not query.wait(_LOOK_SECONDS / len(running))]
        shown.update(queries)


def show(result: Result, interrupt: Interrupt, written: RowWriter | None = None) -> None:
    """Print the result of a statement; a batch query is abandoned if a stop is requested."""
    from watersmeet.cli.rows import err, out, show_table
    from watersmeet.runtime.inspection.selecting import StateRows
    from watersmeet.session.results import Batch, Message, Plan, Started, Table

    show_rows = show_table if written is None else written.rows
    match result:
        case Message(text):
            err().print(text, soft_wrap=True)
        case Table(columns, rows):
            show_rows(columns, rows)
        case Batch(frame):
            from watersmeet.session.table_queries import rows_unless

            if (found := rows_unless(lambda: interrupt.asked, frame)) is not None:
                show_rows(frame.columns, found)
        case StateRows():
            show_rows(result.columns, result.rows())
        case Plan(text):
            out().print(text, soft_wrap=True)
        case Started(query):
            err().print(f"started {query.name}; checkpoint {query.checkpoint}", soft_wrap=True)


def print_interrupted(queries: list[RunningQuery], again: str, *, resumable: bool) -> None:
    """Print where the checkpoints are, and the command that resumes the run."""
    typer.echo("stopped", err=True)
    for query in queries:
        typer.echo(f"checkpoint of {query.name}: {query.checkpoint}", err=True)
    if queries and resumable:
        typer.echo(f"resume with: {again}", err=True)


def resume_command(words: Sequence[str]) -> str:
    """Return the command for a user, of the arguments that ``resume_words`` returns."""
    restarts: list[str] = []
    if (watched := watch()) is not None:
        restarts.append("--restart-on-failure")
        restarts += ["--max-restarts", str(watched.restarts)] if watched.restarts != DEFAULT_RESTARTS else []
    return shlex.join(["watersmeet", *words, *restarts])


def resume_words(
    script: str,
    mode: QueryMode,
    workspace: str,
    checkpoint: str | None,
    packages: Iterable[str],
    master: str | None,
    view: View = View.AUTO,
    *,
    real_time: bool = False,
) -> list[str]:
    """Return the arguments of ``watersmeet`` that run the same script on the same checkpoints, from the same folder."""
    from watersmeet.runtime.query_mode import QueryMode

    words = ["run", script]
    if mode is not QueryMode.CONTINUOUS:
        words.append(f"--{mode.value}")
    if real_time:
        words.append("--real-time")
    if workspace != DEFAULT_WORKSPACE:
        words += ["--workspace", workspace]
    if checkpoint is not None:
        words += ["--checkpoint", checkpoint]
    for package in packages:
        words += ["--packages", package]
    if master is not None:
        words += ["--master", master]
    if view is not View.AUTO:
        words += ["--view", view.value]
    return words
