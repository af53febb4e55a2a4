"""``watersmeet sql``: an interactive shell with history and completion; Spark starts while the user types."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from watersmeet.cli.interrupt import Interrupt, interruptible
from watersmeet.cli.live import View
from watersmeet.cli.parameters import (
    DEFAULT_WORKSPACE,
    Master,
    Packages,
    ViewOption,
    Workspace,
    WorkspaceName,
    local_folder,
    named_place,
)
from watersmeet.errors import CatalogError, ConfigError, WatersmeetError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from watersmeet.connectors.console import Show
    from watersmeet.runtime.query import RunningQuery
    from watersmeet.session.session import Session
    from watersmeet.sql.statements import Statement

LEAVE = ("exit", "quit")
HELP = """\
Statements end with a semicolon and may span lines; the Tab key completes keywords and names.
  CREATE STREAM … ; INSERT INTO … VALUES … ;   streams and their rows
  SELECT … ;                                    runs and displays its rows until Ctrl-C
  CREATE STREAM … AS SELECT … ;                 runs in the background, as does INSERT INTO … SELECT
  EXPLAIN SELECT … ;                            how a query would run
  SHOW STREAMS; DESCRIBE …; SHOW QUERIES; STOP QUERY …; DROP STREAM …;
view changes, view table, view auto: how a SELECT displays its rows: all changes, or a table of current rows
help, exit: print this text, leave the shell (also Ctrl-D; background queries stop and can be resumed)"""

_LOOK_SECONDS = 0.2


def shell(
    workspace: Workspace = DEFAULT_WORKSPACE,
    packages: Packages = None,
    master: Master = None,
    view: ViewOption = View.AUTO,
) -> None:
    """Start an interactive shell for SQL statements."""
    if not sys.stdin.isatty():
        raise ConfigError("the shell needs a terminal", hint="watersmeet run - takes statements from standard input")
    from watersmeet.cli.prompt import make_prompt
    from watersmeet.cli.spark import SparkStart
    from watersmeet.cli.state import queries_folder

    place = named_place(workspace)
    catalog = _catalog_of(place)
    typer.echo("watersmeet: statements end with ;  help, exit")
    prompt = make_prompt(local_folder(place), catalog)
    start = SparkStart(place, packages or (), master)
    try:
        with Shell(start.session, view, queries_folder(None, workspace)).opened() as opened:
            opened.loop(prompt)
    finally:
        start.abandon()


class Shell:
    """Executes what is typed; the first statement calls ``open_session``."""

    def __init__(
        self, open_session: Callable[[], Session], view: View = View.AUTO, queries: str = f"{DEFAULT_WORKSPACE}/queries"
    ) -> None:
        self._open_session = open_session
        self._queries = queries
        self._view = view
        self._session: Session | None = None
        self._background: list[RunningQuery] = []

    def loop(self, prompt: PromptSession[str]) -> None:
        """Read and execute until ``exit`` or the end of input."""
        while True:
            self._print_failures()
            try:
                text = prompt.prompt()
            except KeyboardInterrupt:
                continue  # Ctrl-C discards the line
            except EOFError:
                return
            match text.lower().replace(";", " ").split():
                case [word] if word in LEAVE:
                    return
                case ["help"]:
                    typer.echo(HELP)
                case ["view", *asked]:
                    self._choose_view(" ".join(asked))
                case [_, *_]:
                    self.execute(text)

    def execute(self, text: str) -> None:
        """Execute statements and print their results; stop at the first error and print it."""
        from watersmeet.sql.parse import parse

        try:
            with interruptible() as interrupt:
                for statement in parse(text):
                    self._carry_out(statement, interrupt)
                    if interrupt.asked:
                        return
        except WatersmeetError as error:
            typer.echo(str(error), err=True)

    @contextmanager
    def opened(self) -> Iterator[Shell]:
        """Yield the shell; at the end stop its session, and print how to resume its queries."""
        try:
            yield self
        finally:
            running = [query for query in self._background if query.is_active]
            if self._session is not None:
                from watersmeet.cli.spark import stop_session

                stop_session(self._session)
            for query in running:
                typer.echo(f"stopped {query.name}; its statement resumes it from {query.checkpoint}")

    def _choose_view(self, asked: str) -> None:
        """Set the view of the following SELECTs, or print it if no name is given."""
        known = [view.value for view in View]
        if asked and asked not in known:
            error = ConfigError(f"there is no view {asked}", hint=f"view {', view '.join(known)}")
            typer.echo(str(error), err=True)
            return
        self._view = View(asked or self._view.value)
        typer.echo(f"view {self._view.value} (of {', '.join(known)})")

    def _carry_out(self, statement: Statement, interrupt: Interrupt) -> None:
        from watersmeet.cli.rows import can_draw, show_changes
        from watersmeet.cli.run import show, show_states
        from watersmeet.cli.views import show_of
        from watersmeet.session.results import Started
        from watersmeet.sql.statements import Select

        if show_states([statement], self._queries):
            return
        if self._session is None:
            self._session = self._open_session()
        text = in_place(statement)
        if isinstance(statement, Select):
            self._session.show = rows = show_of(statement, self._view, in_place=can_draw())
            # Each SELECT reads its streams from the beginning, so its checkpoint is temporary.
            with tempfile.TemporaryDirectory(prefix="watersmeet-select-", ignore_cleanup_errors=True) as folder:
                for result in self._session.run(text, checkpoint=folder):
                    if isinstance(result, Started):
                        _follow(result.query, rows, interrupt)
            return
        self._session.show = show_changes
        for result in self._session.run(text):
            if isinstance(result, Started):
                self._background.append(result.query)
                typer.echo(f"{result.query.name} runs in the background; STOP QUERY {result.query.name} ends it")
            else:
                show(result, interrupt)

    def _print_failures(self) -> None:
        """Print the errors of background queries that have failed since the last call."""
        for query in list(self._background):
            if query.is_active:
                continue
            self._background.remove(query)
            try:
                query.wait(0)
            except WatersmeetError as error:
                typer.echo(str(error), err=True)


def _follow(query: RunningQuery, rows: Show, interrupt: Interrupt) -> None:
    """Display a query's rows until it ends or Ctrl-C is pressed."""
    from watersmeet.cli.progress import total
    from watersmeet.cli.views import drawn

    typer.echo("Ctrl-C stops", err=True)
    with drawn(rows):
        try:
            while not interrupt.asked and not query.wait(_LOOK_SECONDS):
                pass
        finally:
            query.stop()
    report = query.report()
    typer.echo(f"{report.rows_out:,} rows out of {total(report.rows_in):,} in", err=True)
    bad, late = total(report.quarantined), total(report.late)
    if bad or late:
        typer.echo(f"left out: {bad:,} bad rows (watersmeet run keeps them), {late:,} late ones", err=True)


def in_place(statement: Statement) -> str:
    """Return the statement's text, padded so that positions in errors match the typed text."""
    return "\n" * (statement.position.line - 1) + " " * (statement.position.col - 1) + statement.source


def _catalog_of(workspace: WorkspaceName) -> Callable[[], dict[str, tuple[str, ...]]]:
    """Return a function that reads the current streams of the workspace and their columns.

    Raises ``CatalogError`` if the catalog cannot be read; if it becomes unreadable later, there are no streams.  Nor
    are there in a workspace on a store, which only Spark reads.
    """
    if not isinstance(workspace, Path):
        return dict
    from watersmeet.catalog.catalog import Catalog

    catalog = Catalog(workspace)
    catalog.streams()

    def streams() -> dict[str, tuple[str, ...]]:
        try:
            known = catalog.streams().values()
        except CatalogError:
            return {}  # an error would end the shell while the user types
        return {stream.name: tuple(column.name for column in stream.columns) for stream in known}

    return streams
