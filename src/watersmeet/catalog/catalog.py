"""The catalogue: the streams and tables of a workspace, as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from watersmeet.catalog.local_file import LocalFile
from watersmeet.catalog.streams import StreamDef
from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.errors import CatalogError, did_you_mean

T = TypeVar("T")

#: The format that is written, and those that are read: earlier ones have no checksum.
_FORMAT, _READABLE = 4, (1, 2, 3, 4)
_RESTORE = "restore the file from a copy, or move it away and create the streams again"


class _Stored(BaseModel):
    """The content of the file; streams by lower-case name."""

    model_config = ConfigDict(extra="forbid")

    version: int
    streams: dict[str, StreamDef]


class CatalogFile(Protocol):
    """Where the catalogue is written; see ``LocalFile`` for a folder of this machine."""

    def read(self) -> tuple[str, bytes] | None:
        """The file's name and content; None if there is none."""

    def change(self, update: Callable[[], str | None]) -> None:
        """Write what ``update`` makes of the file as it is, if it gives anything; no other change is lost.

        ``update`` is called again if another process has changed the file meanwhile.
        """


class Catalog:
    """Streams by name, ignoring case; two that change it at once both have their way.

    All methods raise ``CatalogError`` if the file cannot be read, parsed or written.
    """

    def __init__(self, place: Path | CatalogFile) -> None:
        self._file: CatalogFile = LocalFile(place) if isinstance(place, Path) else place

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

        def add(stored: _Stored) -> bool:
            added = is_new(stream, stored.streams.get(stream.name.lower()), if_not_exists=if_not_exists)
            if added:
                stored.streams[stream.name.lower()] = stream
            return added

        return self._change(add)

    def drop(self, name: str) -> StreamDef:
        """Remove a stream, and return its definition."""

        def drop(stored: _Stored) -> StreamDef:
            stream = _found(stored, name)
            del stored.streams[name.lower()]
            return stream

        return self._change(drop)

    def replace(self, stream: StreamDef) -> None:
        """Replace the definition of a stream."""

        def replace(stored: _Stored) -> None:
            stored.streams[stream.name.lower()] = stream

        self._change(replace)

    def _read(self) -> _Stored:
        found = self._file.read()
        return _Stored(version=_FORMAT, streams={}) if found is None else _parse(found[1], found[0])

    def _change(self, change: Callable[[_Stored], T]) -> T:
        results: list[T] = []

        def update() -> str | None:
            stored = self._read()
            before = dict(stored.streams)
            results.append(change(stored))
            stored.version = _FORMAT
            return None if stored.streams == before else sealed(stored.model_dump_json(indent=2)).decode() + "\n"

        self._file.change(update)
        return results[-1]


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


def _parse(found: bytes, path: str) -> _Stored:
    try:
        text = found.decode()
        json.loads(text)
        content, seal = read_sealed(found)
    except UnicodeDecodeError:
        raise CatalogError(f"{path} is not a catalogue: it is not text in UTF-8", hint=_RESTORE) from None
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
