"""The checksums that Hadoop keeps beside files on local disks: ``.NAME.crc`` for ``NAME``."""

from __future__ import annotations

import struct
import zlib

_HEAD = struct.Struct(">4si")
_MAGIC = b"crc\0"


def checksum_name(name: str) -> str:
    """The name of the file that holds a file's checksums."""
    return f".{name}.crc"


def is_checksum(name: str) -> bool:
    """Whether a file holds the checksums of another."""
    return name.startswith(".") and name.endswith(".crc")


def fits(content: bytes, stored: bytes) -> bool:
    """Whether the checksums are those of the content."""
    if len(stored) < _HEAD.size:
        return False
    magic, size = _HEAD.unpack(stored[: _HEAD.size])
    if magic != _MAGIC or size < 1:
        return False
    found = [zlib.crc32(content[start : start + size]) for start in range(0, len(content), size)]
    return stored[_HEAD.size :] == struct.pack(f">{len(found)}I", *found)
