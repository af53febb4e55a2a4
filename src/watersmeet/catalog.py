"""The catalogue: which streams there are, kept as one JSON file in the workspace folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from watersmeet.columns import TP_TIME
from watersmeet.errors import CatalogError, did_you_mean
from watersmeet.plan.times import EventTime, TimeUnit

#: The connector of a stream that lives in the workspace (CREATE STREAM without WITH).
EMBEDDED = "embedded"


StreamMode: TypeAlias = Literal["append", "versioned_kv", "changelog_kv", "mutable"]


class StreamColumn(BaseModel):
    """A declared column; ``type`` in Spark's SQL."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str


class StreamDef(BaseModel):
    """A stream as the catalogue keeps it."""

    model_config = ConfigDict(frozen=True)

    name: str
    columns: tuple[StreamColumn, ...]
    time_column: str = TP_TIME
    time_unit: TimeUnit = TimeUnit.TIMESTAMP
    delay: int = 0
    has_watermark: bool = False
    primary_key: tuple[str, ...] = ()
    mode: StreamMode = "append"
    connector: str = EMBEDDED
    options: dict[str, str] = {}
    settings: dict[str, str | int | float | bool] = {}
    derived: bool = False
    definition: str = ""

    @property
    def event_time(self) -> EventTime:
        """The event-time column and how far out of order it comes."""
        return EventTime(self.time_column, self.time_unit, self.delay, self.has_watermark)

    def column(self, name: str) -> StreamColumn | None:
        """The declared column of that name, compared without case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)


class _Stored(BaseModel):
    version: Literal[1] = 1
    streams: dict[str, StreamDef] = {}


class Catalog:
    """Streams by name (case does not count); changes are made under a lock and written whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "catalog.json"

    def streams(self) -> dict[str, StreamDef]:
        """All streams by name."""
        return {stream.name: stream for stream in self._read().streams.values()}

    def get(self, name: str) -> StreamDef | None:
        """The stream of that name, None where there is none."""
        return self._read().streams.get(name.lower())

    def require(self, name: str) -> StreamDef:
        """The stream; ``CatalogError`` with the nearest names where there is none."""
        stored = self._read()
        if (stream := stored.streams.get(name.lower())) is not None:
            return stream
        known = [stream.name for stream in stored.streams.values()]
        raise CatalogError(f"there is no stream {name}", hint=did_you_mean(name, known))

    def add(self, stream: StreamDef, *, if_not_exists: bool = False) -> bool:
        """Add a stream; False where it was there and that is allowed."""
        with self._changing() as stored:
            if stream.name.lower() in stored.streams:
                if if_not_exists:
                    return False
                raise CatalogError(
                    f"there is a stream {stream.name} already", hint="use another name, or DROP STREAM it first"
                )
            stored.streams[stream.name.lower()] = stream
            return True

    def drop(self, name: str) -> StreamDef:
        """Take a stream out; the definition it had comes back."""
        stream = self.require(name)
        with self._changing() as stored:
            del stored.streams[name.lower()]
        return stream

    def _read(self) -> _Stored:
        if not self._path.exists():
            return _Stored()
        return _Stored.model_validate_json(self._path.read_text())

    @contextmanager
    def _changing(self) -> Iterator[_Stored]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "catalog.lock").open("w") as lock:
            flock(lock, LOCK_EX)
            stored = self._read()
            yield stored
            written = self._path.with_suffix(".tmp")
            written.write_text(stored.model_dump_json(indent=2))
            written.replace(self._path)
