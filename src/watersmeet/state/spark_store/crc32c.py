"""The CRC-32C of bytes, as Hadoop and RocksDB note it of what they write."""

from __future__ import annotations

import numpy as np

_POLYNOMIAL = 0x82F63B78
_FULL = 0xFFFFFFFF


def _table() -> list[int]:
    found = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (_POLYNOMIAL if number & 1 else 0)
        found.append(number)
    return found


_TABLE = _table()
_ARRAY = np.array(_TABLE, dtype=np.uint32)


def crc32c(content: bytes) -> int:
    """The checksum of some bytes."""
    value = _FULL
    for byte in content:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ _FULL


def crc32c_of_chunks(content: bytes, size: int) -> list[int]:
    """The checksums of all chunks of ``size`` bytes, the last of which may be shorter; all chunks are done at once."""
    whole = len(content) // size
    chunks = np.frombuffer(content, dtype=np.uint8, count=whole * size).reshape(whole, size)
    values = np.full(whole, _FULL, dtype=np.uint32)
    for column in np.ascontiguousarray(chunks.T):
        values = (values >> np.uint32(8)) ^ _ARRAY[(values ^ column) & np.uint32(0xFF)]
    found = [int(value) for value in values ^ np.uint32(_FULL)]
    return [*found, crc32c(content[whole * size :])] if whole * size < len(content) else found
