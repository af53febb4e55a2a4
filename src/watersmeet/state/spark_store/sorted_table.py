"""A sorted table of RocksDB (``.sst``, block-based format): one key looked up, or every block checked.

    data blocks, then blocks about them, then the index: for each data block a key not below its last one
    footer: which checksum, where the index is, version, magic number

Each block ends with how it is compressed, and a checksum.  Every block that is read is compared with it.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs
import xxhash

from watersmeet.state.spark_store.damage import damaged, reading, unreadable

_FOOTER_BYTES, _TRAILER_BYTES = 53, 5
_MAGIC = 0x88E241B785F4CFF7
_LONGEST_VARINT = 10
#: Of versions from 6 on a block's checksum depends on its place in the file; Spark writes 5.
_VERSIONS = (3, 4, 5)
_HALF = 0xFFFFFFFF
_CODECS = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
_NONE, _ZLIB, _SNAPPY = 0, 2, 1
_INDEX_TYPE = b"rocksdb.block.based.table.index.type"
_KEYS_ALONE, _DELTAS = b"rocksdb.index.key.is.user.key", b"rocksdb.index.value.is.delta.encoded"
_DELETIONS = b"rocksdb.num.range-deletions"
#: The last byte of an entry's key: what it says of the key.
_DELETED, PUT, _DELETED_ONCE = 0, 1, 7


class _Handle(NamedTuple):
    start: int
    size: int


class Found(NamedTuple):
    """The newest entry of a key in a table; ``value`` is None where it was deleted."""

    sequence: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class SortedTable:
    """An opened table: for each data block its greatest key and its place."""

    file: pa.NativeFile
    path: str
    checksum: Callable[[bytes], int]
    keys: list[bytes]
    handles: list[_Handle]
    meta: list[_Handle]

    def get(self, key: bytes) -> Found | None:
        """Return the newest entry of a key; None if the table has none."""
        newest: Found | None = None
        for number in range(bisect.bisect_left(self.keys, key), len(self.handles)):
            for inner, value in _entries(self._block(self.handles[number]), self.path):
                found, sequence = inner[:-8], int.from_bytes(inner[-8:], "little")
                if found == key and (newest is None or sequence >> 8 > newest.sequence):
                    newest = Found(sequence >> 8, self._value(sequence & 0xFF, value))
                elif found > key:
                    return newest
            if self.keys[number] > key:
                break
        return newest

    def check(self) -> None:
        """Read every block; ``CheckpointError`` if one is damaged."""
        for handle in (*self.handles, *self.meta):
            self._block(handle)

    def _value(self, kind: int, value: bytes) -> bytes | None:
        if kind == PUT:
            return value
        if kind in (_DELETED, _DELETED_ONCE):
            return None
        raise unreadable(self.path, f"it has entries of the kind {kind}")

    def _block(self, handle: _Handle) -> bytes:
        return _read_block(self.file, self.path, self.checksum, handle)


def open_table(filesystem: pyarrow.fs.FileSystem, path: str) -> SortedTable:
    """Open a table; ``CheckpointError`` if it is missing or damaged, or has a format that Spark does not write."""
    with reading(path):
        file = filesystem.open_input_file(path)
        size = file.size()
        footer = bytes(file.read_at(_FOOTER_BYTES, max(0, size - _FOOTER_BYTES)))
    if len(footer) < _FOOTER_BYTES or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise damaged(path, "it does not end as a table of RocksDB does")
    version = struct.unpack("<I", footer[-12:-8])[0]
    if version not in _VERSIONS:
        raise unreadable(path, f"it is a table of version {version}, known are {', '.join(map(str, _VERSIONS))}")
    checksum = _CHECKSUMS.get(footer[0])
    if checksum is None:
        raise unreadable(path, f"its blocks have checksums of the kind {footer[0]}")
    meta, at = _handle(footer, 1, path)
    index, _ = _handle(footer, at, path)
    named = dict(_entries(_read_block(file, path, checksum, meta), path))
    others = {name: _handle(value, 0, path)[0] for name, value in named.items()}
    if b"rocksdb.properties" not in others:
        raise damaged(path, "it has no properties")
    # deletions of ranges of keys are noted in a block of their own
    properties = dict(_entries(_read_block(file, path, checksum, others[b"rocksdb.properties"]), path))
    if int.from_bytes(properties.get(_INDEX_TYPE, b"\0"), "little") != 0:
        raise unreadable(path, "its index is in parts")
    if int.from_bytes(properties.get(_DELETIONS, b"\0"), "little") != 0:
        raise unreadable(path, "it deletes ranges of keys")
    block = _read_block(file, path, checksum, index)
    keys, handles = [], []
    for key, handle in _index(block, path, deltas=properties.get(_DELTAS, b"\0") != b"\0"):
        keys.append(key if properties.get(_KEYS_ALONE, b"\0") != b"\0" else key[:-8])
        handles.append(handle)
    return SortedTable(file, path, checksum, keys, handles, [meta, index, *others.values()])


# -- blocks ------------------------------------------------------------------------------------------------------------


def _read_block(file: pa.NativeFile, path: str, checksum: Callable[[bytes], int], handle: _Handle) -> bytes:
    with reading(path):
        stored = bytes(file.read_at(handle.size + _TRAILER_BYTES, handle.start))
    content = stored[:-4]
    if len(stored) != handle.size + _TRAILER_BYTES or checksum(content) != struct.unpack("<I", stored[-4:])[0]:
        raise damaged(path, f"the block at {handle.start} is not what was written")
    kind, payload = content[-1], content[:-1]
    if kind == _NONE:
        return payload
    # the size stands before what is compressed; snappy has it inside
    size, at = _varint(payload, 0, path)
    try:
        if kind == _ZLIB:
            return zlib.decompress(payload[at:], wbits=-15)
        inner = payload if kind == _SNAPPY else payload[at:]
        return bytes(pa.Codec(_CODECS[kind]).decompress(inner, decompressed_size=size, asbytes=True))
    except KeyError:
        raise unreadable(path, f"its blocks are compressed by the method {kind}") from None
    except (OSError, pa.ArrowException, zlib.error):
        raise damaged(path, f"the block at {handle.start} cannot be unpacked") from None


def _entries(block: bytes, path: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block."""
    at, end, key = 0, _end_of_entries(block, path), b""
    while at < end:
        shared, at = _varint(block, at, path)
        own, at = _varint(block, at, path)
        length, at = _varint(block, at, path)
        key = key[:shared] + block[at : at + own]
        at += own + length
        yield key, block[at - length : at]


def _index(block: bytes, path: str, *, deltas: bool) -> Iterator[tuple[bytes, _Handle]]:
    """Yield the keys and places of an index; a place may be told by the one before."""
    if not deltas:
        for key, value in _entries(block, path):
            yield key, _handle(value, 0, path)[0]
        return
    at, end, key, handle = 0, _end_of_entries(block, path), b"", _Handle(0, 0)
    while at < end:
        shared, at = _varint(block, at, path)
        own, at = _varint(block, at, path)
        key = key[:shared] + block[at : at + own]
        at += own
        if shared == 0:
            handle, at = _handle(block, at, path)
        else:
            change, at = _varint(block, at, path)
            size = handle.size + ((change >> 1) ^ -(change & 1))
            handle = _Handle(handle.start + handle.size + _TRAILER_BYTES, size)
        yield key, handle


def _end_of_entries(block: bytes, path: str) -> int:
    """Where a block's list of restarts begins; the highest bit of its length says that a table of hashes follows."""
    if len(block) < 4:
        raise damaged(path, "a block is empty")
    restarts = struct.unpack("<I", block[-4:])[0]
    if restarts >> 31:
        raise unreadable(path, "its blocks have tables of hashes")
    return len(block) - 4 - 4 * int(restarts)


def _handle(data: bytes, at: int, path: str) -> tuple[_Handle, int]:
    start, at = _varint(data, at, path)
    size, at = _varint(data, at, path)
    return _Handle(start, size), at


def _varint(data: bytes, at: int, path: str) -> tuple[int, int]:
    value = 0
    for number in range(_LONGEST_VARINT):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value, at
    raise damaged(path, "a number in it is cut off")


# -- checksums ---------------------------------------------------------------------------------------------------------


def _xxh3(content: bytes) -> int:
    """XXH3 of all but the last byte, which is mixed in afterwards."""
    return (xxhash.xxh3_64_intdigest(content[:-1]) & _HALF) ^ ((content[-1] * 0x6B9083D9) & _HALF)


#: By the number in the footer; 4 is what RocksDB writes by itself.
_CHECKSUMS: dict[int, Callable[[bytes], int]] = {
    2: xxhash.xxh32_intdigest,
    3: lambda content: xxhash.xxh64_intdigest(content) & _HALF,
    4: _xxh3,
}
