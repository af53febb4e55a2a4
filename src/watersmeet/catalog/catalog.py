"""The catalogue: the streams and tables of a workspace, in one JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from watersmeet.catalog.streams import StreamDef
from watersmeet.catalog.workspace import make_workspace, no_folder, not_writable
from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.errors import CatalogError, did_you_mean

#: The format that is written, and those that are read: earlier ones have no checksum.
_FORMAT, _READABLE = 4, (1, 2, 3, 4)
_RESTORE = "restore the file from a copy, or move it away and create the streams again"


class _Stored(BaseModel):
    """The content of the file; streams by lower-case name."""

    model_config = ConfigDict(extra="forbid")

    version: int
    streams: dict[str, StreamDef]


class Catalog:
    """Streams by name, ignoring case; changes are made under a lock and written atomically.

    All methods raise ``CatalogError`` if the file cannot be read, parsed or written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "catalog.json"

    def streams(self) -> dict[str, StreamDef]:
        """All streams by name."""
        return {stream.name: stream for stream in self._read().streams.values()}

    def get(self, name: str) -> StreamDef | None:
        """The stream of that name, None if there is none."""
        return self._read().streams.get(name.lower())

    def require(self, name: str) -> StreamDef:
        """The stream; ``CatalogError`` with the nearest names if there is none."""
        return _found(self._read(), name)

    def add(self, stream: StreamDef, *, if_not_exists: bool = False) -> bool:
        """Add a stream; False if it exists already and may (see ``is_new``)."""
        with self._changing() as stored:
            added = is_new(stream, stored.streams.get(stream.name.lower()), if_not_exists=if_not_exists)
            if added:
                stored.streams[stream.name.lower()] = stream
            return added

    def drop(self, name: str) -> StreamDef:
        """Remove a stream, and return its definition."""
        with self._changing() as stored:
            stream = _found(stored, name)
            del stored.streams[name.lower()]
        return stream

    def replace(self, stream: StreamDef) -> None:
        """Replace the definition of a stream."""
        with self._changing() as stored:
            stored.streams[stream.name.lower()] = stream

    def _read(self) -> _Stored:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return _Stored(version=_FORMAT, streams={})
        except NotADirectoryError:
            raise no_folder(self._folder) from None
        except UnicodeDecodeError:
            raise CatalogError(f"{self._path} is not a catalogue: it is not text in UTF-8", hint=_RESTORE) from None
        except OSError as error:
            raise CatalogError(
                f"{self._path} cannot be read: {error.strerror}",
                hint="make it a file that you may read, or use another workspace",
            ) from None
        return _parse(text, self._path)

    @contextmanager
    def _changing(self) -> Iterator[_Stored]:
        try:
            make_workspace(self._folder)
            with (self._folder / "catalog.lock").open("w") as lock:
                flock(lock, LOCK_EX)
                stored = self._read()
                yield stored
                stored.version = _FORMAT
                written = self._path.with_suffix(".tmp")
                written.touch(mode=0o600)
                written.write_text(sealed(stored.model_dump_json(indent=2)).decode() + "\n", encoding="utf-8")
                written.replace(self._path)
        except OSError as error:
            raise not_writable(self._path, error) from None


def is_same(known: StreamDef, stream: StreamDef) -> bool:
    """Whether CREATE STREAM defines the known stream again; its wording and indexes do not count."""
    return known.model_copy(update={"definition": stream.definition, "indexes": stream.indexes}) == stream


def is_new(stream: StreamDef, known: StreamDef | None, *, if_not_exists: bool) -> bool:
    """Whether CREATE STREAM creates a stream, given the ``known`` one of that name.

    False if the known one stays: with IF NOT EXISTS, and if both are the same, because a job that runs again creates
    its streams again.  Raises ``CatalogError`` if they differ.
    """
    if known is None:
        return True
    if if_not_exists or is_same(known, stream):
        return False
    raise CatalogError(
        f"there is a {known.kind} {known.name} already", hint=f"use another name, or DROP {known.kind.upper()} it first"
    )


def _found(stored: _Stored, name: str) -> StreamDef:
    if (stream := stored.streams.get(name.lower())) is not None:
        return stream
    known = [stream.name for stream in stored.streams.values()]
    raise CatalogError(f"there is no stream {name}", hint=did_you_mean(name, known))


def _parse(text: str, path: Path) -> _Stored:
    try:
        json.loads(text)
        content, seal = read_sealed(text.encode())
    except json.JSONDecodeError as error:
        raise CatalogError(
            f"{path} is not a catalogue: its JSON breaks at line {error.lineno}, column {error.colno}", hint=_RESTORE
        ) from None
    except RecursionError:
        raise CatalogError(f"{path} is not a catalogue: it is nested too deeply", hint=_RESTORE) from None
    except DamageError as error:
        raise CatalogError(f"{path} is not a catalogue: {error}", hint=_RESTORE) from None
    if "version" not in content:
        raise CatalogError(f"{path} is not a catalogue: it has no version", hint=_RESTORE)
    if content["version"] not in _READABLE:
        raise CatalogError(
            f"{path} has format {content['version']}, this version of Watersmeet reads formats "
            f"{_READABLE[0]} to {_READABLE[-1]}",
            hint="use the version of Watersmeet that wrote it, or another workspace",
        )
    if seal is Seal.WRONG:
        raise CatalogError(
            f"{path} is not what was written: its checksum is that of another content",
            hint=f'{_RESTORE}; if you edited it on purpose, delete the member "checksum" in it',
        )
    try:
        return _Stored.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise CatalogError(f"{path} is not a catalogue: {place}: {first['msg']}", hint=_RESTORE) from None
