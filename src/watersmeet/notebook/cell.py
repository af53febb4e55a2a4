"""The statements of one cell, carried out one after the other, each with its result below the cell."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Protocol

from IPython.display import HTML, DisplayHandle, display

from watersmeet.cli.live import works_on_changes
from watersmeet.cli.shell import in_place
from watersmeet.errors import BindError, WatersmeetError
from watersmeet.html import page_part, paragraph
from watersmeet.notebook.query_rows import QueryRows
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.status_html import progress_html
from watersmeet.session.results import Result, Started
from watersmeet.session.session import Session
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import Select, Statement

_REDRAW_SECONDS = 0.5


class _Shows(Protocol):
    def _repr_html_(self) -> str: ...


class Cell:
    """A cell's statements and how its queries run.

    A SELECT is shown for ``seconds`` and then stopped; other queries are shown for as long, and go on.  If the cell is
    ``bounded``, each query is waited for instead, and ends with what its streams hold now.
    """

    def __init__(self, session: Session, text: str, *, seconds: float, bounded: bool, real_time: bool) -> None:
        self._session = session
        self._text = text
        self._seconds = seconds
        self._mode = QueryMode.BOUNDED if bounded else QueryMode.CONTINUOUS
        self._real_time = real_time
        self._background: list[Started] = []

    def run(self) -> Result | QueryRows:
        """Carry out and show all statements; the result of the last one."""
        result: Result | QueryRows | None = None
        for statement in parse(self._text):
            result = self._select(statement) if isinstance(statement, Select) else self._other(statement)
        if result is None:
            raise BindError("the cell contains no statement")
        self._show_background()
        return result

    def _other(self, statement: Statement) -> Result:
        (result,) = self._session.run(in_place(statement), self._mode, real_time=self._real_time)
        if not isinstance(result, Started):
            display(result)
        elif self._mode is QueryMode.BOUNDED:
            self._follow(result.query, result)
        else:
            self._background.append(result)
        return result

    def _select(self, statement: Select) -> QueryRows:
        """Run a SELECT, which reads its streams from the beginning: so its checkpoint is temporary."""
        rows = QueryRows(as_changes=works_on_changes(statement.query))
        before, self._session.show = self._session.show, rows
        try:
            with tempfile.TemporaryDirectory(prefix="watersmeet-cell-", ignore_cleanup_errors=True) as folder:
                (started,) = self._session.run(
                    in_place(statement), self._mode, checkpoint=folder, real_time=self._real_time
                )
                assert isinstance(started, Started)
                self._follow(started.query, rows)
        finally:
            self._session.show = before
        return rows

    def _follow(self, query: RunningQuery, shown: _Shows) -> None:
        """Show a query until it ends, or for as long as a SELECT is shown; it has ended on return."""
        seconds = None if self._mode is QueryMode.BOUNDED else self._seconds
        handle = _handle()
        try:
            ended = _wait(query, seconds, lambda: handle.update(HTML(_above(query, shown) + shown._repr_html_())))
        except KeyboardInterrupt:
            raise WatersmeetError(f"interrupted: {query.name} was stopped") from None
        finally:
            query.stop()
            handle.update(HTML(shown._repr_html_()))
        if not ended:
            display(HTML(page_part(paragraph(f"stopped after {self._seconds:g} s; --seconds says how long", "dim"))))

    def _show_background(self) -> None:
        """Show what the queries of the cell do, side by side; an interrupt ends only that."""
        deadline = time.monotonic() + self._seconds
        handles = [(each.query, _handle()) for each in self._background]
        try:
            for query, handle in handles:
                handle.update(HTML(query._repr_html_()))
            while handles and time.monotonic() < deadline and any(query.is_active for query, _ in handles):
                for query, handle in handles:
                    query.wait(min(_REDRAW_SECONDS, max(deadline - time.monotonic(), 0)))
                    handle.update(HTML(query._repr_html_()))
        except KeyboardInterrupt:
            pass
        finally:
            for query, handle in handles:
                handle.update(HTML(query._repr_html_()))
        running = [query.name for query, _ in handles if query.is_active]
        if running:
            note = f"in the background: {', '.join(running)}; STOP QUERY ends one, SHOW QUERIES lists all"
            display(HTML(page_part(paragraph(note, "dim"))))


def _above(query: RunningQuery, shown: _Shows) -> str:
    """How much of a bounded SELECT is done, above its rows; other queries show it themselves."""
    progress = query.report().progress
    return "" if progress is None or not isinstance(shown, QueryRows) else page_part(progress_html(progress))


def _wait(query: RunningQuery, seconds: float | None, redraw: Callable[[], None]) -> bool:
    """Redraw until the query ends (True) or the time is over (False); raises the query's error."""
    deadline = float("inf") if seconds is None else time.monotonic() + seconds
    while True:
        redraw()
        left = deadline - time.monotonic()
        if query.wait(min(_REDRAW_SECONDS, max(left, 0))):
            return True
        if left <= 0:
            return False


def _handle() -> DisplayHandle:
    """A place below the cell whose content can be replaced."""
    handle: DisplayHandle = display(HTML(""), display_id=True)
    return handle
