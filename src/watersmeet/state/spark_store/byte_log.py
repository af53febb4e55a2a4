"""A compressed file of Spark, read from any place: blocks of LZ4 as Java writes them, or one stream of Zstandard.

A block of LZ4 says how long it is, packed and not, so what is not wanted is passed over without unpacking it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs
import xxhash

from watersmeet.state.spark_store.damage import damaged, reading, unreadable

_MAGIC, _ZSTD_MAGIC = b"LZ4Block", b"\x28\xb5\x2f\xfd"
_HEADER = struct.Struct("<8sBiiI")
_SEED, _CHECKED = 0x9747B28C, 0x0FFFFFFF
_RAW, _PACKED = 0x10, 0x20
_PIECE = 1 << 16


class Mark(NamedTuple):
    """A place in a log: where its block begins in the file, and how many bytes of it come before."""

    block: int
    inside: int


class ByteLog:
    """The unpacked bytes of a file, one after the other.

    Raises ``CheckpointError`` if it is missing, damaged, or compressed in another way.
    """

    def __init__(self, filesystem: pyarrow.fs.FileSystem, path: str) -> None:
        self._path = path
        self._filesystem = filesystem
        with reading(path):
            self._file = filesystem.open_input_file(path)
            start = bytes(self._file.read_at(len(_MAGIC), 0))
        self._stream: pa.NativeFile | None = None
        if start[:4] == _ZSTD_MAGIC:
            self._restart()
        elif start != _MAGIC:
            raise unreadable(path, "it is compressed neither by lz4 nor by zstd")
        self._next = 0
        self._block, self._size, self._inside = 0, 0, 0
        self._content: bytes | None = b""

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        pieces = []
        while count > 0:
            self._fill()
            if self._content is None:
                self._content = self._unpacked()
            piece = self._content[self._inside : self._inside + count]
            self._inside += len(piece)
            count -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip(self, count: int) -> None:
        """Pass over the next ``count`` bytes, which are not checked."""
        while count > 0:
            self._fill()
            step = min(count, self._size - self._inside)
            self._inside += step
            count -= step

    def mark(self) -> Mark:
        """The place of the next byte."""
        return Mark(self._block, self._inside)

    def seek(self, mark: Mark) -> None:
        """Go to a place."""
        if self._stream is not None:
            self._restart()
            self._next = self._block = self._size = self._inside = 0
            self._content = b""
            self.skip(mark.block + mark.inside)
            return
        self._next, self._size, self._content = mark.block, 0, b""
        self._inside = 0
        self.skip(mark.inside)

    def _restart(self) -> None:
        with reading(self._path):
            self._stream = pa.CompressedInputStream(self._filesystem.open_input_stream(self._path), "zstd")

    def _fill(self) -> None:
        """Go on to the next block if this one has been read."""
        while self._inside >= self._size:
            if self._stream is not None:
                self._block = self._next
                with reading(self._path):
                    self._content = bytes(self._stream.read(_PIECE))
                self._size = len(self._content)
                self._next += self._size
            else:
                self._block = self._next
                self._header = self._read_header()
                self._size, self._content = self._header[3], None
                self._next = self._block + _HEADER.size + self._header[2]
            self._inside = 0
            if self._size == 0:
                raise damaged(self._path, "it ends too early")

    def _read_header(self) -> tuple[bytes, int, int, int, int]:
        with reading(self._path):
            stored = bytes(self._file.read_at(_HEADER.size, self._block))
        if len(stored) < _HEADER.size:
            raise damaged(self._path, "it ends too early")
        magic, token, packed, size, check = _HEADER.unpack(stored)
        if magic != _MAGIC or packed < 0 or size < 0 or token & 0xF0 not in (_RAW, _PACKED):
            raise damaged(self._path, f"no block begins at {self._block}")
        return magic, token, packed, size, check

    def _unpacked(self) -> bytes:
        _, token, packed, size, check = self._header
        with reading(self._path):
            stored = bytes(self._file.read_at(packed, self._block + _HEADER.size))
        try:
            if token & 0xF0 == _PACKED:
                stored = bytes(pa.Codec("lz4_raw").decompress(stored, decompressed_size=size, asbytes=True))
        except (OSError, pa.ArrowException):
            stored = b""
        if len(stored) != size or xxhash.xxh32_intdigest(stored, _SEED) & _CHECKED != check:
            raise damaged(self._path, f"the block at {self._block} is not what was written")
        return stored
