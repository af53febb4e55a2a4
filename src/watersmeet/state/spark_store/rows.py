"""Keys and values as Spark's state store has them: rows of Spark, a byte of the encoding's version before each.

A value of our state is in a map, by its name, of its bucket: its key is the row of ``STRUCT<bucket INT>``, with its
length before it, and then the row of ``STRUCT<name STRING>``.  Spark's rows hold 8 bytes for the NULLs, and 8 for each
field: a number, or where in the row the field is and how long.
"""

from __future__ import annotations

import struct

_VERSION = b"\x00"
_NO_NULLS = struct.pack("<q", 0)
#: A row of one field begins with its NULLs and the field.
_HEAD = 16


def key_of(family: int, bucket: int, name: str) -> bytes:
    """The key of a value; ``family`` is the number of the map among the store's column families."""
    of_bucket = _VERSION + _row_of(_NO_NULLS + struct.pack("<q", bucket & 0xFFFFFFFF))
    of_name = _VERSION + _row_of(_row_of(name.encode()))
    return struct.pack("<hi", family, len(of_bucket)) + of_bucket + of_name


def value_of(stored: bytes) -> bytes | None:
    """The bytes in a stored value, the row of ``STRUCT<value BINARY>``; None if it is none."""
    if len(stored) < 1 + _HEAD or stored[:1] != _VERSION:
        return None
    length, start = struct.unpack("<II", stored[1 + 8 : 1 + _HEAD])
    found = stored[1 + start : 1 + start + length]
    return found if len(found) == length else None


def _row_of(field: bytes) -> bytes:
    """A row of one field, which is padded to words of 8 bytes."""
    return _NO_NULLS + struct.pack("<II", len(field), _HEAD) + field + bytes(-len(field) % 8)
