"""What a connector offers: options, checks, a source, stored rows and a sink, as one object per connector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.console import Show
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.connectors.stream_schema import spark_schema
from watersmeet.errors import UnsupportedError
from watersmeet.runtime.real_time.sinks import LiveSink
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.store_folder import Place
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.seek import Seek, Starts

#: Tries again what raises ``SinkOutageError``, for as long as the query has it.
Tried: TypeAlias = Callable[[Callable[[], None]], None]
#: The hint where a batch could not be written.
WRITES_ANEW = "fix the cause and run the query again: it writes the batch anew"
#: Writes a batch: its rows, its number, and a key that names query and batch.
WriteBatch: TypeAlias = Callable[[DataFrame, int, str], object]


@dataclass(frozen=True, slots=True)
class Reading:
    """A request for a source.

    ``limited`` honours limits on the size of a batch, ``seek`` says where to begin, ``starts`` where streams have begun
    (None: only Spark's checkpoint knows), ``live`` is for a query in real time.  ``newest_only``: of a changing stream,
    the query needs only the newest row of each key.  ``pieces`` is the folder in which the query's checkpoint keeps
    what was read of systems that give it only once (None: the checkpoint is not known).
    """

    spark: SparkSession
    stream: StreamDef
    workspace: Place
    limited: bool = False
    seek: Seek | None = None
    starts: Starts | None = None
    live: bool = False
    newest_only: bool = False
    pieces: str | None = None

    @property
    def columns(self) -> StructType:
        """The declared columns."""
        return spark_schema(self.stream)

    @property
    def changing(self) -> StreamDef | None:
        """The stream, if it is a changing stream."""
        return self.stream if self.stream.changes else None


def once(attempt: Callable[[], None]) -> None:
    """Try once alone."""
    attempt()


@dataclass(frozen=True, slots=True)
class Writing:
    """A request for a sink.

    Rows of a ``changelog`` carry ``_tp_delta``, ``show`` prints to the terminal.  ``tried`` takes what the driver
    writes by itself, without a Spark job.
    """

    stream: StreamDef
    workspace: Place
    changelog: bool
    show: Show
    tried: Tried = once

    @property
    def changing(self) -> StreamDef | None:
        """The stream, if it is a changing stream: it has one row per key."""
        return self.stream if self.stream.changes else None


class NoOptions(BaseModel):
    """The WITH options of a connector that takes none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Connector(ABC):
    """Base class of connectors. The docstring of a subclass is its reference and names every option.

    ``prefixes`` maps a dictionary field of ``model`` to the prefixes of the options that go into it.
    """

    name: ClassVar[str]
    model: ClassVar[type[BaseModel]] = NoOptions
    prefixes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options of a stream. This contacts no other system."""
        parse_options(self.model, self.name, stream.options, nested=self.prefixes)


class SourceConnector(Connector):
    """A connector that streams can be read from."""

    @abstractmethod
    def open_source(self, reading: Reading) -> Source:
        """Return the stream as a source.

        Raises ``ConfigError`` for options and ``ConnectorError`` where the source cannot be reached.
        """

    def limits_batches(self, stream: StreamDef) -> bool:
        """Return whether a batch may leave out rows that are there; raises ``ConfigError`` for options."""
        return True


class StoredConnector(SourceConnector):
    """A source that can also be read as a batch. It knows when rows arrived and honours ``seek``."""

    @abstractmethod
    def open_stored(self, reading: Reading) -> DataFrame:
        """Return the rows that the stream has now, as a batch source frame; raises as ``open_source`` does."""


class SinkConnector(Connector):
    """A connector that results can be written to; ``changelogs`` lists the ways in which it takes retractions."""

    changelogs: ClassVar[tuple[Changelogs, ...]] = ()

    @abstractmethod
    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what writes a batch; writing the same batch again changes nothing.

        Raises ``ConnectorError`` where the sink cannot be reached or does not fit the stream.  A batch that could not
        be written because the sink does not answer is ``SinkOutageError``.
        """

    def open_live_sink(self, writing: Writing) -> LiveSink:
        """Return what writes rows in real time; raises as ``open_sink`` does, and ``UnsupportedError`` if it cannot."""
        raise UnsupportedError(
            f"{writing.stream.name} ({self.name}) cannot be written to in real time",
            hint="write to a stream of kafka, jdbc or print, or leave out mode = 'real_time': micro-batches take it",
        )

    def reach(self, spark: SparkSession, stream: StreamDef) -> None:
        """Raise ``SinkOutageError`` if the system is known not to answer now; a query asks before it tries again."""

    def takes_changelog(self, stream: StreamDef) -> bool:
        """Return whether the stream is defined so that it takes a changelog."""
        return any(way.fits(stream) for way in self.changelogs)
