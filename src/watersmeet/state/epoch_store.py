"""The store of a real-time query: what changed in an epoch is one file, written when the epoch ends.

A file holds the values that its epoch put, then the places of all live values, in this file and in earlier ones, then
the length of that index.  So the newest file that counts is enough to find every value.  Files are never changed; one
is deleted once no live value is in it.  The index has the file's own name, and checksums of the values and of itself: a
file that has changed, or stands in the place of another, is refused.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pyarrow.fs

from watersmeet.checksums import DamageError, Seal, checksum, read_sealed, sealed
from watersmeet.errors import CheckpointError
from watersmeet.filesystems import filesystem_of

FORMAT_VERSION = 2
_READABLE = (1, FORMAT_VERSION)  # 1 lacks checksums and the name
_LENGTH_BYTES = 8


class Place(NamedTuple):
    """Where a value is: a file of the folder, and its bytes there; the checksum is empty in files of format 1."""

    file: str
    start: int
    length: int
    checksum: str = ""


class EpochStore:
    """Values by name in ``folder`` (a path or URI), as the file ``base`` left them (None: none yet).

    File names begin with the number of their epoch, so that they sort by it.  Changes stay in memory until ``write``.

    Raises ``CheckpointError`` if ``base`` is missing or damaged.
    """

    def __init__(self, folder: str, base: str | None) -> None:
        self._filesystem, self._path = filesystem_of(folder)
        self._base = base
        self._stored: dict[str, Place] = {} if base is None else self._read_index(base)
        self._new: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        """Return the value of a name; None if there is none.  ``CheckpointError`` if it is damaged."""
        if name in self._new:
            return self._new[name]
        place = self._stored.get(name)
        if place is None:
            return None
        with self._open(place.file) as file:
            value = bytes(file.read_at(place.length, place.start))
        if len(value) != place.length or (place.checksum and checksum([value]) != place.checksum):
            raise self._damaged(place.file, "a value is not what was written")
        return value

    def put(self, name: str, value: bytes) -> None:
        """Set the value of a name."""
        self._new[name] = bytes(value)

    def delete(self, name: str) -> None:
        """Delete a name."""
        self._new.pop(name, None)
        self._stored.pop(name, None)

    def write(self, name: str) -> None:
        """Write everything that changed as the file ``name``; a file of that name is replaced."""
        places: dict[str, Place] = {key: place for key, place in self._stored.items() if key not in self._new}
        self._filesystem.create_dir(self._path, recursive=True)
        with self._filesystem.open_output_stream(f"{self._path}/{name}") as out:
            start = 0
            for key, value in self._new.items():
                out.write(value)
                places[key] = Place(name, start, len(value), checksum([value]))
                start += len(value)
            fields = {"version": FORMAT_VERSION, "name": self._full_name(name), "values": places}
            index = sealed(json.dumps(fields, separators=(",", ":")))
            out.write(index)
            out.write(len(index).to_bytes(_LENGTH_BYTES, "big"))

    @property
    def files(self) -> list[str]:
        """The names of all files that are needed: ``base``, and those in which a value is live."""
        return sorted({place.file for place in self._stored.values()} | ({self._base} if self._base else set()))

    @property
    def names(self) -> list[str]:
        """The names of all values."""
        return sorted({*self._stored, *self._new})

    def remove_unused(self) -> None:
        """Delete files before ``base`` in which nothing is live.

        Only those: a run that was abandoned may still be here when its successor writes later files.
        """
        if self._base is None:
            return
        live = {place.file for place in self._stored.values()}
        for found in self._filesystem.get_file_info(pyarrow.fs.FileSelector(self._path, allow_not_found=True)):
            if found.base_name < self._base and found.base_name not in live:
                self._filesystem.delete_file(found.path)

    def _read_index(self, name: str) -> dict[str, Place]:
        with self._open(name) as file:
            size = file.size()
            end = max(0, size - _LENGTH_BYTES)
            length = int.from_bytes(file.read_at(_LENGTH_BYTES, end), "big") if end else 0
            text = file.read_at(length, end - length) if 0 < length <= end else b""
        try:
            index, seal = read_sealed(text)
            version = index["version"]
        except (DamageError, KeyError):
            raise self._damaged(name, "it has no index") from None
        if version not in _READABLE:
            raise CheckpointError(
                f"{self._path}/{name} has format {version}, this version of Watersmeet reads "
                f"{' and '.join(map(str, _READABLE))}",
                hint="run it with the version that wrote it, or start on a new checkpoint",
            )
        if seal is not (Seal.ABSENT if version == 1 else Seal.RIGHT):
            raise self._damaged(name, "its index is not what was written")
        if version > 1 and index["name"] != self._full_name(name):
            raise self._damaged(name, f"it is {index['name']}")
        try:
            return {key: Place(*place) for key, place in index["values"].items()}
        except (KeyError, TypeError, AttributeError):  # of format 1
            raise self._damaged(name, "it has no index") from None

    def _full_name(self, name: str) -> str:
        """A file's name with those of its two folders, which tell the tasks of a query apart."""
        return "/".join([*self._path.rstrip("/").split("/")[-2:], name])

    def _damaged(self, name: str, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path}/{name} is damaged: {what}", hint="restore the file from a copy")

    def _open(self, name: str) -> pyarrow.NativeFile:
        try:
            return self._filesystem.open_input_file(f"{self._path}/{name}")
        except OSError as error:
            raise CheckpointError(
                f"{self._path}/{name} cannot be read: {str(error).splitlines()[0]}",
                hint="restore the file from a copy, or start on a new checkpoint",
            ) from None
