"""The wire format of Confluent's serializers: a zero byte, a schema's number (4 bytes, big-endian), the value.

A Protobuf value is preceded by the path to its message in the schema: how many numbers, and the numbers, as zigzag
varints.  The path to the first message is a single zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.records.decoder import bounds

HEADER_BYTES = 5
_MOST_LEVELS = 64


class FramingError(Exception):
    """A value does not begin as the wire format says."""


def schema_numbers(values: pa.Array) -> np.ndarray:
    """The numbers of the records' schemas; -1 where a record does not begin with a zero byte and a number."""
    starts, ends, octets = bounds(values)
    framed = ends - starts >= HEADER_BYTES
    framed[framed] = octets[starts[framed]] == 0
    found = np.full(len(values), -1, np.int64)
    places = starts[framed]
    found[framed] = sum(octets[places + 1 + n].astype(np.int64) << (24 - 8 * n) for n in range(4))
    return found


def bodies(values: pa.Array) -> pa.Array:
    """What follows the headers of records, which all have one."""
    if len(values) == 0:
        return values
    starts, ends, _ = bounds(values)
    # an array of the bodies and of the headers between them, which Arrow copies without
    offsets = np.empty(2 * len(values), np.int32)
    offsets[::2], offsets[1::2] = starts + HEADER_BYTES, ends
    with_headers = pa.Array.from_buffers(
        pa.binary(), 2 * len(values) - 1, [None, pa.py_buffer(offsets), values.buffers()[2]]
    )
    return with_headers.take(pa.array(np.arange(0, 2 * len(values), 2)))


def header(number: int) -> bytes:
    """What stands before a value of the schema of that number."""
    return b"\0" + number.to_bytes(4, "big")


def message_path(body: bytes) -> tuple[tuple[int, ...], int]:
    """The path to the message, and where the message itself begins; ``FramingError`` if it cannot be read."""
    count, place = _varint(body, 0)
    if count == 0:
        return (0,), place
    if not 0 < count <= _MOST_LEVELS:
        raise FramingError("the path to the message cannot be read")
    path = []
    for _ in range(count):
        number, place = _varint(body, place)
        path.append(number)
    return tuple(path), place


def path_bytes(path: Sequence[int]) -> bytes:
    """The path to a message as it is written."""
    if list(path) == [0]:
        return b"\0"
    return b"".join(_varint_bytes(number) for number in (len(path), *path))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    raw = shift = 0
    for octet in data[place : place + 5]:
        place += 1
        raw |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (raw >> 1) ^ -(raw & 1), place
        shift += 7
    raise FramingError("the path to the message cannot be read")


def _varint_bytes(number: int) -> bytes:
    raw, found = number << 1, bytearray()
    while raw >= 0x80:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*found, raw])
