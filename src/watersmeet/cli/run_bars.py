"""How much of bounded and draining runs is done: bars on a terminal, else lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from watersmeet.runtime.query import RunningQuery

_BAR_WIDTH = 20
_LINE_SECONDS = 10.0


def bars(queries: Sequence[RunningQuery]) -> list[Table]:
    """Return a line for each query that runs to an end, with a bar where it is known how much is done."""
    found = []
    for query in queries:
        progress = query.report().progress
        if progress is None or not query.is_active:
            continue
        line = Table.grid(padding=(0, 1), expand=True)
        if progress.fraction is not None:
            line.add_column(width=_BAR_WIDTH)
        line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        text = Text(f"{query.name}: {progress.text}")
        if progress.fraction is None:
            line.add_row(text)
        else:
            bar = ProgressBar(1.0, progress.fraction, width=_BAR_WIDTH, complete_style="cyan", finished_style="cyan")
            line.add_row(bar, text)
        found.append(line)
    return found


class RunLines:
    """Says in lines what the one batch of a run does, if that has changed, and not too often."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, str]] = {}

    def line(self, query: RunningQuery, now: float) -> str | None:
        """Return the line for a query that is due at a time, in seconds of some clock; None if none is."""
        progress = query.report().progress
        if progress is None or progress.tasks is None:
            return None
        then, before = self._said.setdefault(query.name, (now, ""))
        if now - then < _LINE_SECONDS or progress.text == before:
            return None
        self._said[query.name] = now, progress.text
        return f"{query.name}: {progress.text}"
