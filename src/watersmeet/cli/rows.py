"""Rows on the terminal: result rows as they come, and tables to look at."""

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
_displays: list[Console] = []  # that of the live display, while there is one


def out() -> Console:
    """Standard output; not folded to 80 columns where it is no terminal."""
    return _displays[-1] if _displays else _console(stderr=False)


def err() -> Console:
    """Standard error, for what is about the run and not its result."""
    return _displays[-1] if _displays and sys.stderr.isatty() else _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    # made anew each time: in tests the streams change
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, emoji=False, markup=False, width=_UNKNOWN_WIDTH)
    )


def can_draw() -> bool:
    """Whether standard output is a terminal that can draw in place."""
    return sys.stdout.isatty() and not out().is_dumb_terminal


@contextmanager
def drawing(renderable: RenderableType) -> Iterator[None]:
    """Draw in place at the end of what is printed, until this closes.

    What is printed meanwhile must go through the very console that draws, which ``out`` and ``err`` give: the lines
    of any other would be drawn over.
    """
    console = out()
    _displays.append(console)
    try:
        with Live(renderable, console=console, refresh_per_second=_REDRAWS_PER_SECOND, transient=True):
            yield
    finally:
        _displays.remove(console)


def show_changes(names: Sequence[str], changes: Sequence[Change], batch: int) -> None:
    """Print a batch's rows, each marked ``+`` (it came) or ``-`` (it was taken back); nothing of an empty batch.

    A table on a terminal; elsewhere one line a row, as ``show_plainly`` prints them.
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
    """The current rows of a query as a table, and below it what does not stand in it.

    With ``most`` there are no more rows than that, each on one line.  Rows that hold more than once are marked ``×2``
    and so on, those that cannot be with their weight.
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
        told = f"defect: rows taken back more often than they came: {shown.negative:,}; please report this query"
        parts.append(Text(told, style="red"))
    return Group(*parts)


def show_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows to look at; ``(no rows)`` where there are none."""
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
    # not a property of the column: rich would make narrow columns vanish beside wide ones
    text.plain = " ".join(text.plain.splitlines())
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _mark(weight: int) -> Text:
    if weight < 0:
        return Text(str(weight), style="red")
    return Text(f"×{weight}" if weight > 1 else "")
