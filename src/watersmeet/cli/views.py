"""A running query's current rows on the terminal: drawn in place, or printed again after each batch that changes them.

The ``print`` sink calls a ``Show`` with each batch, in a thread of Spark's, while the main thread draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult

from watersmeet.cli.live import MAX_KEPT, CurrentRows, Outcome, Shown, View, view_of, works_on_changes
from watersmeet.cli.rows import current_table, drawing, err, out, show_changes

if TYPE_CHECKING:
    from watersmeet.connectors.console import Change, Show
    from watersmeet.sql.statements import Statement

MAX_SHOWN = 100
SEPARATOR = "---"
# A table's header with the empty line above it, the empty line below it, and the notes.
_OTHER_LINES = 6


def show_of(statement: Statement, asked: View, *, in_place: bool) -> Show:
    """Return the display for the rows of a statement's query; only a SELECT can have a table, others have changes."""
    from watersmeet.sql.statements import Select

    if not isinstance(statement, Select) or view_of(statement.query, asked) is View.CHANGES:
        return show_changes
    if works_on_changes(statement.query):
        _announce_changes("the query uses _tp_delta in an expression, so its rows do not add up to a table")
        return show_changes
    return CurrentTable(in_place=in_place)


@contextmanager
def drawn(show: Show) -> Iterator[None]:
    """Draw the current rows of ``show`` in place until the context ends, then print them, so that they stay."""
    if not isinstance(show, CurrentTable) or not show.in_place:
        yield
        return
    try:
        with drawing(show):
            yield
    finally:
        show.end()


class CurrentTable:
    """Keeps a query's current rows and displays them: draws them in place, or prints them again after each change.

    If it cannot keep them (there are too many, or those from before a restart are missing), it says so and displays
    changes instead.
    """

    def __init__(self, *, in_place: bool, most: int = MAX_KEPT) -> None:
        self.in_place = in_place
        self._most = most
        self._begun = False
        self._rows: CurrentRows | None = None
        self._names: Sequence[str] = ()
        self._shown: Shown | None = None  # replaced, never modified: another thread draws it

    def __call__(self, names: Sequence[str], changes: Sequence[Change], batch: int) -> None:
        """Apply and display the changes of a batch."""
        if not self._begun:
            self._begin(names, batch)
        if self._rows is None:
            show_changes(names, changes, batch)
            return
        outcome = self._rows.apply(changes)
        if outcome is Outcome.FULL:
            self._rows = None
            self.end()
            _announce_changes(f"there are more than {self._most:,} distinct rows, too many to keep as a table")
            show_changes(names, changes, batch)
        elif outcome is Outcome.CHANGED:
            self._shown = self._rows.shown(MAX_SHOWN)
            if not self.in_place:
                out().print(SEPARATOR)
                out().print(current_table(names, self._shown))

    def draw(self, lines: int) -> RenderableType:
        """Return the current rows on about ``lines`` lines."""
        shown = self._shown
        return Group() if shown is None else current_table(self._names, shown, max(lines - _OTHER_LINES, 1))

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table on the whole terminal."""
        yield self.draw(options.max_height)

    def end(self) -> None:
        """Print what was drawn in place, so that it stays."""
        shown, self._shown = self._shown, None
        if self.in_place and shown is not None:
            out().print(current_table(self._names, shown))

    def _begin(self, names: Sequence[str], batch: int) -> None:
        self._begun = True
        self._names = names
        if batch == 0:
            self._rows = CurrentRows(self._most)
        else:
            _announce_changes("the query resumes from its checkpoint, and rows that it emitted before are not known")


def _announce_changes(why: str) -> None:
    err().print(f"displaying changes instead of a table: {why}", soft_wrap=True)
