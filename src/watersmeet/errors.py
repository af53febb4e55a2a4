"""The errors that a user can cause or must handle.

Every error has a message, and optionally a detail, a hint and a position in the SQL.  ``str(error)`` renders all of
them; the command line prints that and no stack trace.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in SQL text: that of its first character."""

    line: int
    """The line, from 1."""
    col: int
    """The column, from 1."""

    def __str__(self) -> str:
        return f"line {self.line}, column {self.col}"


class WatersmeetError(Exception):
    """Base class of all errors of Watersmeet; their text has all parts that there are."""

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
        """What is wrong."""
        self.detail = detail
        """The context: a marked line of SQL, a list of allowed values."""
        self.hint = hint
        """What to do."""
        self.position = position
        """Where in the SQL."""

    def __str__(self) -> str:
        head = f"{self.message} ({self.position})" if self.position else self.message
        lines = [head]
        if self.detail:
            lines.append(self.detail)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class SqlSyntaxError(WatersmeetError):
    """The text is not a valid statement."""


class BindError(WatersmeetError):
    """A name is unknown, or a type or the number of columns does not fit."""


class PlanError(WatersmeetError):
    """The query is valid but cannot run as written (its state is unbounded, an input has no watermark)."""


class UnsupportedError(WatersmeetError):
    """The clause is part of the language, but is not supported in this place or for these types."""


class ConfigError(WatersmeetError):
    """An option or a setting is unknown, or its value is not allowed."""

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
        """The name of the option or setting."""


class CatalogError(WatersmeetError):
    """A stream is missing, exists already, or is in use; or the catalogue cannot be read or written."""


class ConnectorError(WatersmeetError):
    """A file, a topic, a broker or a sink cannot be reached, read or written."""


class OutageError(ConnectorError):
    """Another system cannot be reached now; what failed may succeed later."""

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        position: Position | None = None,
        waits_for: str = "",
    ) -> None:
        super().__init__(message, detail=detail, hint=hint, position=position)
        self.waits_for = waits_for
        """The system and the reason, as in ``PostgreSQL at db:5432: connection refused``."""

    @property
    def waiting(self) -> str:
        """What is waited for, and why."""
        return f"waiting for {self.waits_for}" if self.waits_for else f"waiting: {self.message}"


class SinkOutageError(OutageError):
    """The system to which results are written cannot be reached now."""


class CheckpointError(WatersmeetError):
    """A checkpoint is sealed, is damaged, is in use, or belongs to another query or format version."""


class LimitError(WatersmeetError):
    """The state has reached its limit; no rows are lost."""


class LostProcessError(WatersmeetError):
    """A process of Spark has ended: its JVM, a Python worker or an executor."""


def nearest(name: str, candidates: Iterable[str], *, most: int = 3) -> list[str]:
    """The candidates most similar to ``name``, best first, ignoring case."""
    by_folded = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.lower(), by_folded, n=most, cutoff=0.5)
    return [by_folded[folded] for folded in found]


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint with the candidates nearest to ``name``; if none is near, with all of them, at most twelve."""
    known = sorted({each for each in candidates if not each.startswith("$")})  # names with $ are our own
    close = nearest(name, known)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if known and len(known) <= 12:
        return f"known here: {', '.join(known)}"
    return None
