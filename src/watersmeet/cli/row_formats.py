"""``--format``: results on standard output for programs, as JSON objects, one a line, or as CSV."""

from __future__ import annotations

import base64
import itertools
import json
import math
import sys
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.columns import TP_DELTA

if TYPE_CHECKING:
    from watersmeet.connectors.console import Change

_TO_QUOTE = (",", '"', "\n", "\r")


class RowFormat(Enum):
    """How results are printed."""

    TABLE = "table"  # for people
    JSON = "json"
    CSV = "csv"


RowFormatOption = Annotated[
    RowFormat,
    typer.Option("--format", help="Results: tables and lines for people, JSON objects one a line, or CSV."),
]


class RowWriter:
    """Writes rows, from any thread. Those of a running query have their weight, 1 or -1, as ``_tp_delta``."""

    def __init__(self, format: RowFormat) -> None:
        self._is_json = format is RowFormat.JSON
        self._lock = threading.Lock()
        self._header: tuple[str, ...] | None = None

    def changes(self, names: Sequence[str], changes: Sequence[Change], _batch: int) -> None:
        """Write the changes of a batch of a running query."""
        if any(name.lower() == TP_DELTA for name in names):  # the query itself says how its rows count
            self.rows(names, (row for _, row in changes))
        else:
            self.rows((*names, TP_DELTA), ((*row, weight) for weight, row in changes))

    def rows(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write rows. In CSV the names stand before the first of them; an empty line comes before other names."""
        with self._lock:
            if self._is_json:
                fields = _distinct(names)
                for row in rows:
                    _write(json.dumps(dict(zip(fields, map(plain, row), strict=True)), ensure_ascii=False))
            else:
                if (header := tuple(names)) != self._header:
                    if self._header is not None:
                        _write("")
                    _write(",".join(map(csv_cell, header)))
                    self._header = header
                for row in rows:
                    # an empty line is no row to most readers
                    _write(",".join(csv_cell(plain(value)) for value in row) or '""')
            sys.stdout.flush()


def plain(value: object) -> object:
    """Return a value as JSON has it.

    Decimals are texts, which keep all digits; times are texts of ISO 8601 in UTC, bytes of Base64. NaN and infinities
    are texts, and a map is an object.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case Decimal():
            return format(value, "f")
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None).isoformat()
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(plain(name)): plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case _:
            return str(value)


def csv_cell(value: object) -> str:
    """Return a plain value as CSV has it: NULL is empty, and an empty text is quoted."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text == "" or any(each in text for each in _TO_QUOTE):
        return '"' + text.replace('"', '""') + '"'
    return text


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names for an object, in which a second ``id`` would replace the first: ``id_2``."""
    found: list[str] = []
    for name in names:
        if name in found:
            numbered = (f"{name}_{number}" for number in itertools.count(2))
            name = next(each for each in numbered if each not in found and each not in names)
        found.append(name)
    return found


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
