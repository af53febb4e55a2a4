"""Cells that hold an ARRAY, a STRUCT or a MAP, in quotes.

'[1, 2]'        ARRAY<INT>: a list
'(a, 2)'        STRUCT<name: STRING, count: INT>: a dictionary of its fields, in their order
'{a: 1, b: 2}'  MAP<STRING, INT>: a list of pairs
'[(a, 2)]'      they nest; inside, a comma, a colon or a bracket of a text needs quotes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

from watersmeet.expressions.explodes import fields_of
from watersmeet.testing.case import NotationError

_T = exp.DataType.Type
_NESTED = ("ARRAY", "STRUCT", "MAP")
_OPEN, _CLOSE = "[({", "])}"
#: The brackets of each type, and an example.
_FORMS = {
    _T.ARRAY: ("[", "]", "an array", "write it in brackets and quotes: '[1, 2]'"),
    _T.STRUCT: ("(", ")", "a struct", "write its fields in parentheses and quotes: '(a, 2)'"),
    _T.MAP: ("{", "}", "a map", "write its entries in braces and quotes: '{a: 1, b: 2}'"),
}
_NULLS = ("NULL", "∅")


class Entries(list[tuple[Any, Any]]):
    """The entries of a map."""


def is_nested(type_name: str) -> bool:
    """Whether a type is an array, a struct or a map."""
    return type_name.lstrip().upper().startswith(_NESTED) and "<" in type_name


def parse_nested(cell: str, type_name: str, scalar: Callable[[str | None, str], Any]) -> Any:
    """The value of a cell; ``scalar`` reads one of another type.  Raises ``NotationError`` if the text does not fit."""
    return _value(cell, exp.DataType.build(type_name, dialect="spark"), scalar)


def nested_text(value: list[Any] | dict[str, Any] | tuple[Any, ...], scalar: Callable[[Any], str]) -> str:
    """The text of a nested value, without quotes around it; ``scalar`` writes one of another type."""

    def text(part: Any) -> str:
        if isinstance(part, list | dict | tuple):
            return nested_text(part, scalar)
        written = scalar(part)
        is_bare = not isinstance(part, str) or written.startswith("'") or not set(written) & set(f"{_OPEN}{_CLOSE},:")
        return written if is_bare else "'" + written.replace("'", "''") + "'"

    if isinstance(value, dict):
        return f"({', '.join(map(text, value.values()))})"
    if isinstance(value, Entries) or (value and all(isinstance(entry, tuple) for entry in value)):
        return "{" + ", ".join(f"{text(key)}: {text(each)}" for key, each in value) + "}"
    return f"[{', '.join(map(text, value))}]"


def _value(cell: str, kind: exp.DataType, scalar: Callable[[str | None, str], Any]) -> Any:
    first, last, what, hint = _FORMS[kind.this]
    text = cell.strip()
    if not (text.startswith(first) and text.endswith(last)):
        raise NotationError(f"{cell!r} is not {what}", hint=hint)
    parts = list(_split(text[1:-1], ","))
    if kind.is_type(_T.ARRAY):
        return [_part(part, kind.expressions[0], scalar) for part in parts]
    if kind.is_type(_T.STRUCT):
        fields = fields_of(kind)
        if len(parts) != len(fields):
            raise NotationError(f"{cell!r} has {len(parts)} fields, {kind.sql(dialect='spark')} {len(fields)}")
        return {name: _part(part, type, scalar) for part, (name, type) in zip(parts, fields, strict=True)}
    entries = [list(_split(part, ":")) for part in parts]
    if any(len(entry) != 2 for entry in entries):
        raise NotationError(f"{cell!r} is not {what}", hint=hint)
    key, value = kind.expressions
    return Entries((_part(entry[0], key, scalar), _part(entry[1], value, scalar)) for entry in entries)


def _part(text: str, kind: exp.DataType, scalar: Callable[[str | None, str], Any]) -> Any:
    if text in _NULLS:
        return None
    quote = text[:1]
    if quote in "'\"" and quote and len(text) > 1 and text.endswith(quote):
        text = text[1:-1].replace(quote * 2, quote)
    if kind.this in _FORMS:
        return _value(text, kind, scalar)
    return scalar(text, kind.sql(dialect="spark"))


def _split(text: str, sign: str) -> Iterator[str]:
    """Yield the parts between signs that are in no quotes and no brackets; none of blank text."""
    if not text.strip():
        return
    depth, start, quote = 0, 0, ""
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and (not text[start:place].strip() or text[place - 1] == char):  # a doubled one goes on
            quote = char
        elif char in _OPEN or char in _CLOSE:
            depth += 1 if char in _OPEN else -1
        elif char == sign and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if quote:
        raise NotationError(f"the quote {quote} is not closed in {text}")
    yield text[start:].strip()
