"""A changelog of Spark's state store: the keys that a batch put and deleted, and where their values are."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow.fs

from watersmeet.state.spark_store.byte_log import ByteLog, Mark
from watersmeet.state.spark_store.damage import damaged, unreadable

_END, _PUT, _DELETE, _MERGE = 0x00, 0x01, 0x10, 0x11
#: Only Spark 3.5 wrote others for stores without column families, and a store of ours has them.
_VERSION = b"\x00\x02v2"
_DELETED = -1


class Changelog:
    """The values that a file has, by key; None where the key was deleted.  The last change of a key counts."""

    def __init__(self, filesystem: pyarrow.fs.FileSystem, path: str) -> None:
        self.path = path
        self._log = ByteLog(filesystem, path)
        self._places: dict[bytes, tuple[Mark, int] | None] = dict(self._changes())

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def get(self, key: bytes) -> bytes | None:
        """The value of a key that the file has; None if it was deleted."""
        place = self._places[key]
        if place is None:
            return None
        self._log.seek(place[0])
        return self._log.read(place[1])

    def check(self) -> None:
        """Read everything; ``CheckpointError`` if it is damaged."""
        for key in self._places:
            self.get(key)

    def _changes(self) -> Iterator[tuple[bytes, tuple[Mark, int] | None]]:
        log = self._log
        if (version := log.read(len(_VERSION))) != _VERSION:
            raise unreadable(self.path, f"its format is {version[2:].decode('ascii', 'replace')}, known is v2")
        while (kind := log.read(1)[0]) != _END:
            if kind == _MERGE:
                raise unreadable(self.path, "it adds to values")
            key = log.read(self._length())
            length = self._length()
            if kind == _DELETE and length == _DELETED:
                yield key, None
            elif kind == _PUT and length >= 0:
                yield key, (log.mark(), length)
                log.skip(length)
            else:
                raise damaged(self.path, f"a change of the kind {kind} has the length {length}")

    def _length(self) -> int:
        found: int = struct.unpack(">i", self._log.read(4))[0]
        return found
