"""Errors in a cell: shown as text, with the position marked and without a trace."""

from __future__ import annotations

import re

from watersmeet.errors import Position, WatersmeetError
from watersmeet.expressions.positions import excerpt, line_starts

_WORD = re.compile(r"\w+|.", re.DOTALL)


class CellError(WatersmeetError):
    """What ended a cell.  IPython shows its text alone, and the cell counts as failed, so that no later one runs."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows."""
        return str(self).splitlines()


def cell_error(error: WatersmeetError, cell: str) -> CellError:
    """Return an error for its cell, in which a position is marked."""
    detail = error.detail
    if error.position is not None and (marked := _marked(error.position, cell)) is not None:
        is_marked = detail is not None and detail.startswith(f"{error.position.line} | ")
        detail = detail if is_marked else "\n".join(filter(None, [marked, detail]))
    return CellError(error.message, detail=detail, hint=error.hint, position=error.position)


def _marked(position: Position, cell: str) -> str | None:
    starts = line_starts(cell)
    if position.line > len(starts):
        return None
    start = starts[position.line - 1] + position.col - 1
    word = _WORD.match(cell, start)
    return excerpt(cell, start, start if word is None else word.end())
