"""Nested values as JSON: what a record holds, and what passes between a case and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from watersmeet.expressions.explodes import fields_of
from watersmeet.testing.nested_cells import Entries

_T = exp.DataType.Type


def json_text(value: Any, scalar: Callable[[Any], str | None]) -> str:
    """A nested value as JSON; ``scalar`` writes a value of another type as text, from which Spark can read it."""

    def plain(part: Any) -> Any:
        if isinstance(part, Entries):
            return {scalar(key): plain(each) for key, each in part}
        if isinstance(part, list):
            return [plain(each) for each in part]
        if isinstance(part, dict):
            return {name: plain(each) for name, each in part.items()}
        return part if part is None or isinstance(part, bool | int | float) else scalar(part)

    return json.dumps(plain(value))


def nested_value(found: Any, type_name: str, scalar: Callable[[Any, str], Any]) -> Any:
    """The value that a part of a JSON document has in a type; ``scalar`` reads one of another type.

    Raises ``ValueError`` for what does not fit.
    """
    return _value(found, exp.DataType.build(type_name, dialect="spark"), scalar)


def _value(found: Any, kind: exp.DataType, scalar: Callable[[Any, str], Any]) -> Any:
    if found is None:
        return None
    if kind.is_type(_T.ARRAY) and isinstance(found, list):
        return [_value(each, kind.expressions[0], scalar) for each in found]
    if kind.is_type(_T.MAP) and isinstance(found, dict):
        key, value = kind.expressions
        return Entries((_value(name, key, scalar), _value(each, value, scalar)) for name, each in found.items())
    if kind.is_type(_T.STRUCT) and isinstance(found, dict):
        given = {name.lower(): each for name, each in found.items()}
        return {name: _value(given.get(name.lower()), type, scalar) for name, type in fields_of(kind)}
    if kind.is_type(_T.ARRAY, _T.MAP, _T.STRUCT):
        raise ValueError(f"{json.dumps(found, default=float)} does not fit {kind.sql(dialect='spark')}")
    return scalar(found, kind.sql(dialect="spark"))
