"""Values of decoded records as values of declared columns, where they fit exactly.

A decoder gives plain Python values: bool, int, float, str, bytes, Decimal, list, dict (a struct or a map), and numbers
with a meaning: ``Days``, ``Micros`` and ``LocalMicros``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa

from watersmeet.columns import same_name
from watersmeet.expressions.type_names import spark_type


class Days(int):
    """A date, as days since 1970."""


class Micros(int):
    """A moment, as microseconds since 1970."""


class LocalMicros(int):
    """A date and time without a zone, as microseconds since 1970."""


class MisfitError(Exception):
    """A value does not fit; the text says why."""


#: Turns a decoded value, which is not None, into what Arrow takes for a column; ``MisfitError`` if it does not fit.
Fit: TypeAlias = Callable[[Any], Any]

_SHOWN = 40
_EXACT = Context(prec=80)
_FLOAT = struct.Struct("<f")


def fit(kind: pa.DataType) -> Fit:
    """Return what fits values into a column of that type."""
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_signed_integer(kind):
        return _whole(kind)
    if pa.types.is_decimal128(kind):
        return _decimal(kind)
    return _SIMPLE[kind]


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _misfit(value: object, kind: pa.DataType) -> MisfitError:
    return MisfitError(f"{_shown(value)} does not fit {spark_type(kind)}")


def _number(value: Any, kind: pa.DataType) -> int | float | Decimal:
    """A number, also one that is written as text."""
    if type(value) in (int, float, Decimal):
        return value  # type: ignore[no-any-return]
    if type(value) is str:
        try:
            number = Decimal(value, _EXACT)
        except InvalidOperation:
            pass
        else:
            # what Python alone takes for a number: 1_000, digits of other scripts, and an sNaN, which no float can be
            if not number.is_snan() and value.isascii() and "_" not in value:
                return number
    raise _misfit(value, kind)


# -- one value ---------------------------------------------------------------------------------------------------------


def _whole(kind: pa.DataType) -> Fit:
    most = 2 ** (kind.bit_width - 1) - 1

    def whole(value: Any) -> int:
        number = value if type(value) is int else _number(value, kind)
        if type(number) is not int:
            if not math.isfinite(number) or number != (rounded := int(number)):
                raise _misfit(value, kind)
            number = rounded
        if not -most - 1 <= number <= most:
            raise _misfit(value, kind)
        return number

    return whole


def _decimal(kind: pa.DataType) -> Fit:
    least, most = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def decimal(value: Any) -> Decimal:
        number = value if type(value) is Decimal else Decimal(_number(value, kind))
        if not number.is_finite() or number.copy_abs() >= most:
            raise _misfit(value, kind)
        fitting = number.quantize(least, context=_EXACT)
        # the digits of a float are those that it is written with
        if fitting != number and not (type(value) is float and fitting == Decimal(repr(value))):
            raise _misfit(value, kind)
        return fitting

    return decimal


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    number = _number(value, pa.float64())
    try:
        found = float(number)
    except OverflowError:
        raise _misfit(value, pa.float64()) from None
    if math.isinf(found) and type(number) is Decimal and number.is_finite():
        raise _misfit(value, pa.float64())
    return found


def _float(value: Any) -> float:
    number = _double(value)
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        raise _misfit(value, pa.float32()) from None
    return rounded


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise _misfit(value, pa.bool_())


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _misfit(value, pa.string())
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise _misfit(value, pa.binary())
    return value


def _day(value: Any) -> int:
    if type(value) is Days:
        number = int(value)
    else:
        try:
            number = (date.fromisoformat(_text(value)) - date(1970, 1, 1)).days
        except (ValueError, MisfitError):
            raise _misfit(value, pa.date32()) from None
    if not -(2**31) <= number < 2**31:
        raise _misfit(value, pa.date32())
    return number


def _moment(kind: pa.DataType, own: type[int]) -> Fit:
    has_zone = kind.tz is not None

    def moment(value: Any) -> int:
        if type(value) is own:
            number = int(value)
        else:
            try:
                read = datetime.fromisoformat(_text(value))
            except (ValueError, MisfitError):
                raise _misfit(value, kind) from None
            if (read.tzinfo is not None) is not has_zone:
                raise _misfit(value, kind)
            passed = read - datetime(1970, 1, 1, tzinfo=read.tzinfo and _UTC)
            number = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
        if not -(2**63) <= number < 2**63:
            raise _misfit(value, kind)
        return number

    return moment


# -- values of values --------------------------------------------------------------------------------------------------


def _list(kind: pa.DataType) -> Fit:
    element = fit(kind.value_type)

    def listed(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _misfit(value, kind)
        return [None if each is None else element(each) for each in value]

    return listed


def _map(kind: pa.DataType) -> Fit:
    key, item = fit(kind.key_type), fit(kind.item_type)

    def mapped(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            raise _misfit(value, kind)
        return [(key(name), None if each is None else item(each)) for name, each in value.items()]

    return mapped


def _struct(kind: pa.DataType) -> Fit:
    fields = [(each.name, fit(each.type)) for each in kind]

    def structured(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _misfit(value, kind)
        return {name: None if (found := _of(value, name)) is None else each(found) for name, each in fields}

    return structured


def _of(value: Mapping[str, Any], name: str) -> Any:
    if name in value:
        return value[name]
    found = same_name(name, list(value))
    return None if found is None else value[found]


_UTC = datetime.fromisoformat("1970-01-01T00:00:00+00:00").tzinfo
_AWARE, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_SIMPLE: dict[pa.DataType, Fit] = {
    pa.float32(): _float,
    pa.float64(): _double,
    pa.bool_(): _bool,
    pa.string(): _text,
    pa.binary(): _bytes,
    pa.date32(): _day,
    _AWARE: _moment(_AWARE, Micros),
    _LOCAL: _moment(_LOCAL, LocalMicros),
}
