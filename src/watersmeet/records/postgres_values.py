"""Values of PostgreSQL as text, in ISO form and UTC, as Arrow arrays of the declared types.

A column is converted at once where Arrow can, else value by value, which finds the ones that do not fit.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.expressions.type_names import spark_type

_SHOWN = 60
_DIGITS = 80
"""More than a DECIMAL has: quantizing a value that fits must not fail for its precision."""
_INFINITE = ("infinity", "-infinity")
_BEFORE_CHRIST = " BC"


def converted(texts: pa.Array, kind: pa.DataType, name: str) -> tuple[pa.Array, dict[int, str]]:
    """Return the values of a column of that type and name, and by row why a value, now NULL, does not fit."""
    whole = _converted_at_once(texts, kind)
    if whole is not None:
        return whole, {}
    convert = _converter(kind)
    values: list[Any] = []
    reasons: dict[int, str] = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else convert(text))
        except (ValueError, ArithmeticError) as error:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            said = f": {error}" if isinstance(error, _MisfitError) else ""
            reasons[row] = f"column {name}: {shown!r} is no {spark_type(kind)}{said}"
            values.append(None)
    return pa.array(values, kind), reasons


class _MisfitError(ValueError):
    """A value does not fit, for a reason that the type does not tell."""


def _converted_at_once(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values, None where a value may not fit or Arrow reads it otherwise than PostgreSQL writes it."""
    if pa.types.is_string(kind):
        return texts
    try:
        if pa.types.is_boolean(kind):
            is_known = pc.is_in(texts, pa.array(["t", "f"]))
            return (
                pc.equal(texts, "t") if pc.all(pc.or_kleene(is_known, pc.is_null(texts))).as_py() is not False else None
            )
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return pc.cast(texts, kind)
        if pa.types.is_floating(kind):
            found = pc.cast(texts, kind)
            return None if pc.any(pc.is_inf(found)).as_py() else found
        if pa.types.is_decimal(kind):
            return pc.cast(texts, kind)
    except pa.ArrowException:
        return None
    return None


def _converter(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_list(kind):
        element = _converter(kind.value_type)
        is_nested = pa.types.is_list(kind.value_type)
        return lambda text: _array(_items(text), element, is_nested=is_nested)
    if pa.types.is_decimal(kind):
        return lambda text: _decimal(text, kind)
    if pa.types.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return lambda text: _integer(text, most)
    if pa.types.is_floating(kind):
        return lambda text: _float(text, kind)
    if pa.types.is_timestamp(kind):
        return lambda text: _timestamp(text, has_zone=kind.tz is not None)
    for belongs, convert in _CONVERTERS.items():
        if belongs(kind):
            return convert
    raise AssertionError(kind)  # no other type can be declared


def _boolean(text: str) -> bool:
    if text not in ("t", "f"):
        raise ValueError
    return text == "t"


def _integer(text: str, most: int) -> int:
    value = Decimal(text)
    if not value.is_finite() or value != value.to_integral_value():
        raise ValueError
    if not -most <= value < most:
        raise _MisfitError("it is out of range")
    return int(value)


def _float(text: str, kind: pa.DataType) -> float:
    value = float(text)
    if kind == pa.float32() and math.isfinite(value):
        value = pa.scalar(value, pa.float64()).cast(pa.float32()).as_py()
    if math.isinf(value) and text.lower() not in ("infinity", "-infinity"):
        raise _MisfitError("it is out of range")
    return value


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    with localcontext() as context:
        context.prec = _DIGITS
        value = Decimal(text)
        if not value.is_finite():
            raise ValueError
        try:
            value = value.quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP)
        except InvalidOperation:
            raise _MisfitError("it is out of range") from None
        if abs(value) >= Decimal(10) ** (kind.precision - kind.scale):
            raise _MisfitError("it is out of range")
    return value


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError
    return bytes.fromhex(text[2:])


def _date(text: str) -> dt.date:
    _require_range(text)
    return dt.date.fromisoformat(text)


def _timestamp(text: str, *, has_zone: bool) -> dt.datetime:
    _require_range(text)
    if has_zone != text.endswith("+00"):
        raise ValueError
    value = dt.datetime.fromisoformat(text.removesuffix("+00"))
    if value.tzinfo is not None:
        raise ValueError
    return value.replace(tzinfo=dt.UTC) if has_zone else value


def _require_range(text: str) -> None:
    """Raise where PostgreSQL has a time that Spark has not."""
    if text in _INFINITE or text.endswith(_BEFORE_CHRIST) or len(text.partition("-")[0]) > 4:
        raise _MisfitError("a time is from the year 1 to the year 9999")


_CONVERTERS: Mapping[Callable[[pa.DataType], bool], Callable[[str], Any]] = {
    pa.types.is_boolean: _boolean,
    pa.types.is_binary: _bytes,
    pa.types.is_date: _date,
    pa.types.is_string: str,
}


def _array(items: list[Any] | str | None, element: Callable[[Any], Any], *, is_nested: bool) -> list[Any]:
    if not isinstance(items, list):
        raise _MisfitError("it has fewer dimensions")
    if any(isinstance(each, list) for each in items) and not is_nested:
        raise _MisfitError("it has more dimensions")
    if is_nested:
        return [None if each is None else element(_text_of(each)) for each in items]
    return [None if each is None else element(each) for each in items]


def _text_of(item: Any) -> str:
    """An inner array as text, for the converter of its type."""
    if isinstance(item, list):
        return "{" + ",".join("NULL" if each is None else _text_of_element(each) for each in item) + "}"
    raise _MisfitError("it has fewer dimensions")


def _text_of_element(item: Any) -> str:
    if isinstance(item, list):
        return _text_of(item)
    return '"' + str(item).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _items(text: str) -> list[Any]:
    """The elements of an array as text or None, those of inner arrays as lists."""
    start = text.find("{")
    if start < 0 or (start > 0 and text[start - 1] != "="):  # bounds that do not begin at 1 stand before: [0:1]={…}
        raise ValueError
    stack: list[list[Any]] = []
    at = start
    while at < len(text):
        sign = text[at]
        if sign == "{":
            stack.append([])
            at += 1
        elif sign == "}":
            done = stack.pop()
            at += 1
            if not stack:
                if at != len(text):
                    raise ValueError
                return done
            stack[-1].append(done)
        elif sign == ",":
            at += 1
        elif sign == '"':
            item, at = _quoted(text, at + 1)
            stack[-1].append(item)
        else:
            end = at
            while end < len(text) and text[end] not in ",}":
                end += 1
            word = text[at:end]
            stack[-1].append(None if word == "NULL" else word)
            at = end
    raise ValueError


def _quoted(text: str, at: int) -> tuple[str, int]:
    found = []
    while text[at : at + 1] != '"':
        if at >= len(text):
            raise ValueError
        if text[at] == "\\":
            at += 1
        found.append(text[at : at + 1])
        at += 1
    return "".join(found), at + 1
