"""Written numbers, texts and bytes of Avro as values of a reader's type."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from watersmeet.records.schema_registry.avro_types import AvroType
from watersmeet.records.schema_registry.cells import Days, LocalMicros, Micros

_EXACT = Context(prec=80)
_FLOAT = struct.Struct("<f")
#: Microseconds in a unit of a logical type, and what it means.
_TIMES: dict[str, tuple[int, type[int]]] = {
    "timestamp-millis": (1000, Micros),
    "timestamp-micros": (1, Micros),
    "local-timestamp-millis": (1000, LocalMicros),
    "local-timestamp-micros": (1, LocalMicros),
}
#: Those of times that stay whole numbers: times of day, and other times in a column of whole numbers (``as_whole``).
_WHOLE = {"time-millis": 1000, "time-micros": 1} | {f"whole {name}": factor for name, (factor, _) in _TIMES.items()}


class AvroError(Exception):
    """Bytes are not a record of the writer's schema, or cannot be resolved to the reader's; the text says why."""


def conversion(writer: AvroType, reader: AvroType) -> Callable[[Any], Any] | None:
    """What turns a written number, text or bytes into the reader's value; None if it stays as it is."""
    logical = reader.logical
    if logical in _TIMES:
        kind = _TIMES[logical][1]
        factor, _ = _TIMES.get(writer.logical) or _TIMES[logical]
        return lambda raw: kind(raw * factor)
    if logical in _WHOLE:
        wanted = _WHOLE[logical]
        written = _WHOLE.get(writer.logical) or _WHOLE.get(f"whole {writer.logical}") or wanted
        return None if written == wanted else lambda raw: _scaled(raw, written, wanted)
    if logical == "date":
        return Days
    if logical == "decimal":
        scale = writer.scale if writer.logical == "decimal" else reader.scale
        return lambda raw: Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _EXACT)
    if logical == "uuid" and writer.kind == "fixed":
        return lambda raw: str(uuid.UUID(bytes=raw))
    if writer.kind == reader.kind:
        return None
    return _PROMOTED.get(reader.kind)


def _float(number: float) -> float:
    """A whole number as the nearest float of 32 bits."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    return rounded


def as_whole(kind: AvroType) -> AvroType:
    """A type of dates or times as that of the numbers that are written for them."""
    return AvroType(kind.kind, f"whole {kind.logical}" if kind.logical in _TIMES else "")


def _scaled(raw: int, written: int, wanted: int) -> int:
    whole, rest = divmod(raw * written, wanted)
    if rest:
        raise AvroError(f"{raw} is not a whole number in the unit of the reader's schema")
    return whole


def text_of(raw: bytes) -> str:
    """Bytes as text; ``AvroError`` if they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise AvroError("a text is not valid UTF-8") from None


_PROMOTED: dict[str, Callable[[Any], Any]] = {"float": _float, "double": float, "bytes": str.encode, "string": text_of}
