"""The values of Avro's types as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from watersmeet.records.schema_registry.avro_conversions import AvroError, text_of
from watersmeet.records.schema_registry.avro_types import AvroType

#: Reads a value at a place; ``AvroError``, ``IndexError`` and ``struct.error`` mean that the bytes are wrong.
Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
#: Elements without bytes (null, empty records) could be any number.
_MOST_EMPTY = 65_536


def read_long(data: bytes, place: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits."""
    octet = data[place]
    place += 1
    if octet < 0x80:
        return (octet >> 1) ^ -(octet & 1), place
    raw, shift = octet & 0x7F, 7
    while shift < 64:
        octet = data[place]
        place += 1
        raw |= (octet & 0x7F) << shift
        if octet < 0x80:
            if raw >= 2**64:
                break
            return (raw >> 1) ^ -(raw & 1), place
        shift += 7
    raise AvroError("a number has more than 64 bits")


def _read_int(data: bytes, place: int) -> tuple[int, int]:
    number, place = read_long(data, place)
    if not -(2**31) <= number < 2**31:
        raise AvroError("a number has more than 32 bits")
    return number, place


def _read_bytes(data: bytes, place: int) -> tuple[bytes, int]:
    size, place = read_long(data, place)
    if not 0 <= size <= len(data) - place:
        raise AvroError("the record ends within a value")
    return data[place : place + size], place + size


def _read_text(data: bytes, place: int) -> tuple[str, int]:
    raw, place = _read_bytes(data, place)
    return text_of(raw), place


def _read_bool(data: bytes, place: int) -> tuple[bool, int]:
    octet = data[place]
    if octet > 1:
        raise AvroError("a boolean is neither 0 nor 1")
    return octet == 1, place + 1


def _read_float(data: bytes, place: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, place)[0], place + 4


def _read_double(data: bytes, place: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, place)[0], place + 8


_RAW: dict[str, Read] = {
    "null": lambda data, place: (None, place),
    "boolean": _read_bool,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_text,
}


def raw(writer: AvroType) -> Read:
    """What reads a number, a text or bytes as they are written."""
    if writer.kind != "fixed":
        return _RAW[writer.kind]
    size = writer.size

    def fixed(data: bytes, place: int) -> tuple[bytes, int]:
        if size > len(data) - place:
            raise AvroError("the record ends within a value")
        return data[place : place + size], place + size

    return fixed


def _block(data: bytes, place: int) -> tuple[int, int]:
    """Read how many elements a block has; 0 ends an array or a map."""
    count, place = read_long(data, place)
    if count < 0:
        count = -count
        _, place = read_long(data, place)  # how many bytes they have
    if count > max(len(data), _MOST_EMPTY):
        raise AvroError("the record ends within a value")
    return count, place


def array_of(element: Read) -> Read:
    """What reads an array."""

    def array(data: bytes, place: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        count, place = _block(data, place)
        while count:
            for _ in range(count):
                value, place = element(data, place)
                found.append(value)
            count, place = _block(data, place)
        return found, place

    return array


def map_of(element: Read) -> Read:
    """What reads a map."""

    def mapped(data: bytes, place: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        count, place = _block(data, place)
        while count:
            for _ in range(count):
                name, place = _read_text(data, place)
                found[name], place = element(data, place)
            count, place = _block(data, place)
        return found, place

    return mapped
