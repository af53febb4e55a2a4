"""The errors a user can cause, each with what was found, what is allowed and what to do.

Every error has a primary line (the message), and, where they help, a detail, a hint and a position in the SQL.
``str(error)`` renders all of them; the command line prints just that, never a stack trace.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in SQL text: 1-based line and column of its first character."""

    line: int
    col: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.col}"


class WatersmeetError(Exception):
    """Root of all errors that a user can cause.

    ``message`` says what was found, ``detail`` gives the surroundings (a line of SQL with a mark under it, a list
    of what is allowed), ``hint`` says what to do, ``position`` where in the SQL.
    """

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: Position | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        head = f"{self.message} ({self.position})" if self.position else self.message
        lines = [head]
        if self.detail:
            lines.append(self.detail)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class SqlSyntaxError(WatersmeetError):
    """The text is not a statement of the language."""


class BindError(WatersmeetError):
    """A name, a type or the number of columns does not fit."""


class PlanError(WatersmeetError):
    """The query is understood but cannot be run as asked (no bound on its state, no watermark on a side)."""


class UnsupportedError(WatersmeetError):
    """The clause exists in the language, but not in this place or not for these types."""


class ConfigError(WatersmeetError):
    """An option or a setting is unknown or has a value out of its range; ``option`` is its name."""

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: Position | None = None,
        option: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint, position=position)
        self.option = option


class CatalogError(WatersmeetError):
    """A stream is missing, is there already, or is still used."""


class ConnectorError(WatersmeetError):
    """A file, a topic, a broker or a sink cannot be reached, read or written."""


class CheckpointError(WatersmeetError):
    """A checkpoint belongs to another query, another format version, or is sealed."""


class LimitError(WatersmeetError):
    """A limit on the state was reached; nothing was lost."""


def nearest(name: str, candidates: Iterable[str], *, most: int = 3) -> list[str]:
    """The candidates most like ``name``, best first, compared without case."""
    by_folded = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.lower(), by_folded, n=most, cutoff=0.5)
    return [by_folded[folded] for folded in found]


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint naming the candidates nearest to ``name``, or all of them where none is near and they are few."""
    known = sorted(set(candidates))
    close = nearest(name, known)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if known and len(known) <= 12:
        return f"known here: {', '.join(known)}"
    return None
