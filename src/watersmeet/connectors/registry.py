"""Connectors by name: how a stream's definition becomes a source or a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.catalog import EMBEDDED, StreamDef
from watersmeet.columns import STORED_FRONTIER, TP_DELTA, TP_TIME
from watersmeet.connectors import console, datagen, files, kafka
from watersmeet.connectors.embedded import EmbeddedLog
from watersmeet.errors import ConfigError, UnsupportedError, did_you_mean
from watersmeet.runtime.dataflow import Source
from watersmeet.secrets import require_references

SOURCES = ("files", "kafka", "datagen")
SINKS = ("files", "kafka", "print", "blackhole")
TAKE_CHANGELOGS = "files WITH (changelog = 'true'), print and blackhole"


class Sink(Protocol):
    """Takes the rows of one batch; taking a batch again must change nothing.  ``key`` names query and batch."""

    def write(self, frame: DataFrame, batch_id: int, key: str) -> None:
        """Write the rows of one batch."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A sink that is a function of rows and batch."""

    write_batch: Callable[[DataFrame, int, str], object]

    def write(self, frame: DataFrame, batch_id: int, key: str) -> None:
        self.write_batch(frame, batch_id, key)


def spark_schema(stream: StreamDef) -> StructType:
    """The declared columns as Spark knows them; needs a running session."""
    ddl = ", ".join(f"`{column.name}` {column.type}" for column in stream.columns)
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def embedded_log(stream: StreamDef, workspace: Path) -> EmbeddedLog:
    """The log of an embedded stream."""
    return EmbeddedLog(workspace / "streams" / stream.name.lower())


def open_source(spark: SparkSession, stream: StreamDef, workspace: Path, *, limited: bool) -> Source:
    """The stream as a source; ``limited`` honours limits on the size of a batch.

    Raises ``ConfigError`` for options and ``ConnectorError`` where the source cannot be reached.
    """
    columns = spark_schema(stream)
    match stream.connector:
        case "files":
            return Source(files.read_stream(spark, columns, stream.options, limited=limited))
        case "kafka":
            options = dict(stream.options)
            if not limited:
                options.pop("max_offsets_per_trigger", None)
            parts = kafka.partitions(spark, options)
            return Source(kafka.read_stream(spark, columns, options), parts)
        case "datagen":
            return Source(datagen.read_stream(spark, columns, stream.options))
        case connector if connector == EMBEDDED:
            frame = embedded_log(stream, workspace).read_stream(spark, columns)
            return Source(frame, stores_frontier=stream.derived and stream.has_watermark)
        case "print" | "blackhole":
            raise UnsupportedError(f"{stream.name} is a sink ({stream.connector}): it cannot be read")
        case other:
            raise _unknown(other)


def open_sink(stream: StreamDef, workspace: Path, *, changelog: bool, show: console.Show) -> Sink:
    """The stream as a sink.

    Raises ``UnsupportedError`` where results carry corrections and the sink only appends.
    """
    if changelog and not _takes_changelog(stream):
        raise UnsupportedError(
            f"{stream.name} ({stream.connector}) only appends, but this query emits corrections",
            hint=f"use EMIT FINAL, or a sink that takes a changelog: {TAKE_CHANGELOGS}",
        )
    options: Mapping[str, str] = stream.options
    match stream.connector:
        case "files":
            files.options_of(options)
            return _Function(lambda frame, batch_id, key: files.write_batch(frame, key, options))
        case "kafka":
            kafka.parse_options(options)
            return _Function(lambda frame, batch_id, key: kafka.write_batch(frame, batch_id, options, query=key))
        case "print":
            return _Function(lambda frame, batch_id, key: console.print_batch(frame, show))
        case "blackhole":
            return _Function(lambda frame, batch_id, key: frame.write.format("noop").mode("overwrite").save())
        case connector if connector == EMBEDDED:
            log = embedded_log(stream, workspace)
            return _Function(lambda frame, batch_id, key: log.append_frame(frame, key))
        case "datagen":
            raise UnsupportedError(f"{stream.name} makes up its rows (datagen): nothing can be written to it")
        case other:
            raise _unknown(other)


def frame_source(frame: DataFrame) -> Source:
    """Any streaming DataFrame as a source; ties in order fall to a hash of the row."""
    hashed = F.xxhash64(*(F.col(f"`{name}`") for name in frame.columns))
    hidden = {"_seq": F.encode(F.lpad(F.hex(hashed), 16, "0"), "UTF-8")}
    if TP_TIME not in frame.columns:
        hidden[TP_TIME] = F.current_timestamp()
    return Source(frame.withColumns(hidden))


def to_columns(frame: DataFrame, target: StreamDef, chosen: Sequence[str]) -> DataFrame:
    """The rows under the names and types of the target's columns, by position; columns not chosen are NULL.

    A target that declares no columns takes the rows as they are.  ``_tp_delta`` and ``_frontier`` stay at the end.
    """
    if not target.columns or target.derived:
        return frame
    names = [name for name in frame.columns if name not in (TP_DELTA, STORED_FRONTIER)]
    extra = [name for name in frame.columns if name in (TP_DELTA, STORED_FRONTIER)]
    by_target = dict(zip((chosen or [column.name for column in target.columns]), names, strict=False))
    given = {column.lower(): name for column, name in by_target.items()}
    items = []
    for field in spark_schema(target):
        source = given.get(field.name.lower())
        column = F.lit(None) if source is None else F.col(f"`{source}`")
        items.append(column.cast(field.dataType).alias(field.name))
    return frame.select(*items, *extra)


def check_connector(stream: StreamDef) -> None:
    """Raise ``ConfigError`` for a connector or an option that is not known, without reaching out to anything.

    So too for a secret that is written out.
    """
    match stream.connector:
        case "files":
            files.options_of(stream.options)
        case "kafka":
            require_references(kafka.parse_options(stream.options).client)
        case "datagen":
            datagen.options_of(stream.options)
        case "print" | "blackhole":
            for name in stream.options:
                raise ConfigError(f"{stream.connector} has no option {name!r}: it takes none")
        case connector if connector == EMBEDDED:
            for name in stream.options:
                raise ConfigError(
                    f"a stream without a connector has no option {name!r}", hint="add connector = '…' to WITH"
                )
        case other:
            raise _unknown(other)


def _takes_changelog(stream: StreamDef) -> bool:
    if stream.connector == "files":
        return files.options_of(stream.options).changelog
    return stream.connector in ("print", "blackhole")


def _unknown(connector: str) -> ConfigError:
    known = sorted({*SOURCES, *SINKS})
    return ConfigError(f"there is no connector {connector!r}", hint=did_you_mean(connector, known))
