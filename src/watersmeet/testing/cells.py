"""Rows of the test notation: converts cells between text and Python values, by Spark type.

Integers become int, FLOAT and DOUBLE float, DECIMAL Decimal, STRING str, BOOLEAN bool, DATE date, TIMESTAMP a datetime
in UTC, TIMESTAMP_NTZ a datetime without zone, BINARY (hexadecimal digits) bytes, NULL None.  For arrays, structs and
maps see nested_cells.py.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from watersmeet.testing.case import Cells, NotationError
from watersmeet.testing.nested_cells import is_nested, nested_text, parse_nested

Value = int | float | Decimal | str | bool | bytes | date | datetime | list[Any] | dict[str, Any] | None
Row = tuple[Value, ...]
R = TypeVar("R", bound=Row)
V = TypeVar("V", bound=Value)

NULLS = ("NULL", "∅")
"""Cells that mean NULL, unless they are in quotes."""

MARKERS = ("===", ">>>", "<<<", "!!!")
"""The starts of lines that are not rows."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER_BITS = {
    "TINYINT": 8, "BYTE": 8, "SMALLINT": 16, "SHORT": 16, "INT": 32, "INTEGER": 32, "BIGINT": 64, "LONG": 64,
}  # fmt: skip
_SHORT_TIME = re.compile(r"(?:(?P<h>\d{1,2}):)?(?P<m>\d{1,2}):(?P<s>\d{2})(?:\.(?P<f>\d{1,6}))?")
_TYPE = re.compile(r"\s*(?P<name>[A-Za-z_]+)\s*(?:\(\s*(?P<args>[\d\s,]+)\))?\s*")


def split_cells(line: str) -> Cells:
    """Return the cells of one row.  Raises ValueError for a misplaced quote."""
    cells: list[str | None] = []
    at = 0
    while True:
        while at < len(line) and line[at] in " \t":
            at += 1
        if at < len(line) and line[at] in "'\"":
            cell, at = _quoted(line, at)
            cells.append(cell)
        else:
            end = line.find(",", at)
            end = len(line) if end < 0 else end
            bare = line[at:end].strip()
            cells.append(None if bare in NULLS else bare)
            at = end
        if at >= len(line):
            return tuple(cells)
        at += 1


def parse_cell(cell: str | None, type_name: str) -> Value:
    """Return the value of a cell in a column of Spark type ``type_name`` (``INT``, ``decimal(10, 2)``, ``string``...).

    A TIMESTAMP is ``2020-01-01 00:00:00[.ffffff]`` (UTC unless it has an offset), or short: ``HH:MM:SS[.f]`` or
    ``MM:SS[.f]`` on 1970-01-01.  Raises NotationError if the text does not fit the type.
    """
    if cell is None:
        return None
    if is_nested(type_name):
        nested: Value = parse_nested(cell, type_name, parse_cell)
        return nested
    matched = _TYPE.fullmatch(type_name)
    name = matched["name"].upper() if matched else type_name
    try:
        if name in _INTEGER_BITS:
            return _integer(cell, _INTEGER_BITS[name])
        if name in ("DECIMAL", "NUMERIC", "DEC"):
            return _decimal(cell, matched["args"] if matched else None)
        if name in _PARSERS:
            return _PARSERS[name](cell)
    except (ValueError, ArithmeticError) as error:
        detail = str(error) if isinstance(error, ValueError) else "it is out of range"
        raise NotationError(f"{cell!r} is not a value of type {type_name}", detail=detail) from None
    known = ", ".join(sorted({*_INTEGER_BITS, "DECIMAL", *_PARSERS}))
    raise NotationError(f"cells of type {type_name} cannot be written in the notation", hint=f"types: {known}")


def parse_row(cells: Cells, type_names: Sequence[str]) -> Row:
    """Return the values of a row.  Raises NotationError for a cell that does not fit, or a wrong number of cells."""
    if len(cells) != len(type_names):
        shown = ", ".join("NULL" if cell is None else cell for cell in cells)
        raise NotationError(
            f"the row ({shown}) has {_counted(len(cells), 'cell')}, "
            f"its stream or query {_counted(len(type_names), 'column')}"
        )
    return tuple(parse_cell(cell, type_name) for cell, type_name in zip(cells, type_names, strict=True))


def format_value(value: Value) -> str:
    """Return the cell that ``parse_cell`` reads as ``value``; timestamps on 1970-01-01 become ``HH:MM:SS``."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        text = naive.isoformat(sep=" ")
        text = text.rstrip("0") if naive.microsecond else text
        return text.removeprefix("1970-01-01 ")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return repr(value) if not math.isnan(value) else "NaN"
    if isinstance(value, str):
        return _format_text(value)
    if isinstance(value, list | dict):
        return _format_text(nested_text(value, format_value))
    return str(value)


def format_row(row: Sequence[Value]) -> str:
    """Return the row as a line of cells."""
    return ", ".join(format_value(value) for value in row)


def canonical(value: Value) -> Hashable:
    """Return a form in which values that are equal in a test compare and hash equal.

    Tests compare rows, they do not join them.  Equal are 1 and 1.0, 1.5 and 1.50, NaN and NaN, 0.0 and -0.0, an
    instant with and without a zone, and NULL and NULL.
    """
    if isinstance(value, float) and math.isnan(value):
        return ("NaN",)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, list | tuple):
        return tuple(map(canonical, value))
    if isinstance(value, dict):
        return tuple(map(canonical, value.values()))
    return value


def canonical_row(row: Sequence[Value]) -> tuple[Hashable, ...]:
    """Return ``canonical`` of each value."""
    return tuple(canonical(value) for value in row)


def consolidate(changes: Iterable[tuple[int, R]]) -> list[tuple[int, R]]:
    """Sum the weights of equal rows and drop zeros; the order is that of first appearance."""
    first: dict[Hashable, R] = {}
    weights: Counter[Hashable] = Counter()
    for weight, row in changes:
        key = canonical_row(row)
        first.setdefault(key, row)
        weights[key] += weight
    return [(weights[key], row) for key, row in first.items() if weights[key]]


def _quoted(line: str, start: int) -> tuple[str, int]:
    """Return the text of the quoted cell at ``start``, and the offset of its comma or of the end of the line."""
    quote = line[start]
    at = start + 1
    text = ""
    while True:
        end = line.find(quote, at)
        if end < 0:
            raise ValueError(f"the quote {quote} is not closed")
        text += line[at:end]
        if line[end + 1 : end + 2] != quote:
            break
        text += quote
        at = end + 2
    at = end + 1
    while at < len(line) and line[at] in " \t":
        at += 1
    if at < len(line) and line[at] != ",":
        raise ValueError(f"a comma is expected after {line[start : end + 1]}, found {line[at:]!r}")
    return text, at


def _format_text(text: str) -> str:
    plain = text and text == text.strip() and text not in NULLS and not text.startswith(("'", '"', "--", *MARKERS))
    if plain and "," not in text:
        return text
    return "'" + text.replace("'", "''") + "'"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _read(convert: Callable[[str], V], cell: str, what: str) -> V:
    """Return the cell's value; a ValueError says what is expected."""
    try:
        return convert(cell)
    except (ValueError, InvalidOperation):
        raise ValueError(f"{what} is expected") from None


def _integer(cell: str, bits: int) -> int:
    value = _read(int, cell, "a whole number")
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"it does not fit in {bits} bits")
    return value


def _decimal(cell: str, args: str | None) -> Decimal:
    value = _read(Decimal, cell, "a number")
    precision, scale = 10, 0
    if args is not None:
        numbers = [int(part) for part in args.split(",")]
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
    if not value.is_finite():
        raise ValueError("a DECIMAL is finite")
    if value != round(value, scale) or abs(value) >= Decimal(10) ** (precision - scale):
        raise ValueError(f"it does not fit in {precision} digits, {scale} of them after the point")
    return value


def _double(cell: str) -> float:
    return _read(float, cell, "a number")


def _float(cell: str) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", _double(cell)))[0]
    return rounded


def _boolean(cell: str) -> bool:
    folded = cell.lower()
    if folded not in ("true", "false"):
        raise ValueError("true or false is expected")
    return folded == "true"


def _timestamp(cell: str) -> datetime:
    short = _SHORT_TIME.fullmatch(cell)
    if short:
        micros = int((short["f"] or "0").ljust(6, "0"))
        hours, minutes, seconds = int(short["h"] or 0), int(short["m"]), int(short["s"])
        if hours > 23 or minutes > 59 or seconds > 59:
            raise ValueError("hours go to 23, minutes and seconds to 59")
        return EPOCH + timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    value = _read(datetime.fromisoformat, cell, "YYYY-MM-DD HH:MM:SS, HH:MM:SS or MM:SS")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _timestamp_ntz(cell: str) -> datetime:
    return _timestamp(cell).replace(tzinfo=None)


def _date(cell: str) -> date:
    return _read(date.fromisoformat, cell, "YYYY-MM-DD")


def _binary(cell: str) -> bytes:
    return _read(bytes.fromhex, cell, "an even number of hexadecimal digits")


def _text(cell: str) -> str:
    return cell


_PARSERS: dict[str, Callable[[str], Value]] = {
    "FLOAT": _float,
    "REAL": _float,
    "DOUBLE": _double,
    "STRING": _text,
    "VARCHAR": _text,
    "CHAR": _text,
    "BOOLEAN": _boolean,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_LTZ": _timestamp,
    "TIMESTAMP_NTZ": _timestamp_ntz,
    "BINARY": _binary,
}
