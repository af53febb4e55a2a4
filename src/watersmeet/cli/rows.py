"""Prints rows on the terminal: changes as they are emitted, and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from watersmeet.cli.live import Shown
    from watersmeet.connectors.console import Change

_UNKNOWN_WIDTH = 200
_REDRAWS_PER_SECOND = 4
_INSERTED, _DELETED = Text("+", style="green"), Text("-", style="red")
_displays: list[Console] = []  # the console of the live display, while one is open


def out() -> Console:
    """Return the console for standard output; if that is not a terminal, lines are not wrapped at 80 columns."""
    return _displays[-1] if _displays else _console(stderr=False)


def err() -> Console:
    """Return the console for standard error, for messages about the run."""
    return _displays[-1] if _displays and sys.stderr.isatty() else _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # Not cached: in tests the streams change.
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, emoji=False, markup=False, width=_UNKNOWN_WIDTH)
    )


def can_draw() -> bool:
    """Return whether standard output is a terminal that can draw in place."""
    return sys.stdout.isatty() and not out().is_dumb_terminal


@contextmanager
def drawing(renderable: RenderableType) -> Iterator[None]:
    """Redraw ``renderable`` in place below the printed lines until the context ends.

    Meanwhile, print only through ``out`` and ``err``, which return the console that draws: it would overwrite the
    lines of any other console.
    """
    console = out()
    _displays.append(console)
    try:
        with Live(renderable, console=console, refresh_per_second=_REDRAWS_PER_SECOND, transient=True):
            yield
    finally:
        _displays.remove(console)


def show_changes(names: Sequence[str], changes: Sequence[Change], batch: int) -> None:
    """Print a batch's rows, each marked ``+`` (inserted) or ``-`` (retracted); print nothing for an empty batch.

    On a terminal the rows form a table; elsewhere each row is a line, as ``show_plainly`` prints it.
    """
    if not sys.stdout.isatty():
        from watersmeet.connectors.console import show_plainly

        show_plainly(names, changes, batch)
    elif changes:
        table = _empty(["", *names])
        for weight, row in changes:
            table.add_row(_INSERTED if weight > 0 else _DELETED, *map(_styled, row))
        out().print(table)


def current_table(names: Sequence[str], shown: Shown, most: int | None = None) -> Group:
    """Return a table of a query's current rows, with notes below it.

    With ``most``, the table has at most that many rows, each on one line.  Rows that occur several times are marked
    ``×2`` and so on, rows with a negative weight with that weight.
    """
    rows = shown.sorted(most)
    marked = any(weight != 1 for weight, _ in rows)
    table = _empty(["", *names] if marked else names, one_line=most is not None)
    for weight, cells in rows:
        texts = [_styled(cell) for cell in cells]
        table.add_row(*([_mark(weight)] if marked else []), *(texts if most is None else map(_on_one_line, texts)))
    parts: list[RenderableType] = [table if rows else "(no rows)"]
    if shown.all > len(rows):
        parts.append(f"… and {shown.all - len(rows):,} more")
    if shown.negative:
        note = f"defect: rows retracted more often than inserted: {shown.negative:,}; please report this query"
        parts.append(Text(note, style="red"))
    return Group(*parts)


def show_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as a table, or ``(no rows)``."""
    table = _empty(names)
    for row in rows:
        table.add_row(*map(_styled, row))
    if table.row_count == 0:
        out().print("(no rows)")
    else:
        out().print(table)


def _empty(names: Sequence[str], *, one_line: bool = False) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(_on_one_line(Text(name)) if one_line else Text(name), overflow="fold")
    return table


def _styled(value: object) -> Text:
    text = Text("NULL", style="dim") if value is None else Text(str(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        text.justify = "right"
    return text


def _on_one_line(text: Text) -> Text:
    # Not set on the column: rich would then hide narrow columns beside wide ones.
    text.plain = " ".join(text.plain.splitlines())
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _mark(weight: int) -> Text:
    if weight < 0:
        return Text(str(weight), style="red")
    return Text(f"×{weight}" if weight > 1 else "")
