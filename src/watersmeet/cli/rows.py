"""Rows on the terminal: result rows as they come, and tables to look at."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNKNOWN_WIDTH = 200
_INSERTED, _DELETED = Text("+", style="green"), Text("-", style="red")


def out() -> Console:
    """Standard output; not folded to 80 columns where it is no terminal."""
    return _console(stderr=False)


def err() -> Console:
    """Standard error, for what is about the run and not its result."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # made anew each time: the streams change while a live display is on, and in tests
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, emoji=False, markup=False, width=_UNKNOWN_WIDTH)
    )


def show_changes(names: Sequence[str], changes: Sequence[tuple[int, tuple[object, ...]]]) -> None:
    """Print a batch's rows, each marked ``+`` (it came) or ``-`` (it was taken back).

    A table on a terminal; elsewhere one line a row, as ``show_plainly`` prints them.
    """
    if not sys.stdout.isatty():
        from watersmeet.connectors.console import show_plainly

        show_plainly(names, changes)
        return
    table = _empty(["", *names])
    for weight, row in changes:
        table.add_row(_INSERTED if weight > 0 else _DELETED, *map(_styled, row))
    out().print(table)


def show_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows to look at; ``(no rows)`` where there are none."""
    table = _empty(names)
    for row in rows:
        table.add_row(*map(_styled, row))
    if table.row_count == 0:
        out().print("(no rows)")
    else:
        out().print(table)


def _empty(names: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(Text(name), overflow="fold")
    return table


def _styled(value: object) -> Text:
    text = Text("NULL", style="dim") if value is None else Text(str(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        text.justify = "right"
    return text
