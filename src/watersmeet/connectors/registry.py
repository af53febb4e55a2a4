"""Connectors by name, and how a stream's definition is checked and opened as a source or a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from watersmeet.catalog.streams import EMBEDDED, FRAME, StreamDef
from watersmeet.connectors.blackhole import BlackholeConnector
from watersmeet.connectors.connector import (
    Connector,
    Reading,
    SinkConnector,
    SourceConnector,
    StoredConnector,
    Tried,
    WriteBatch,
    Writing,
    once,
)
from watersmeet.connectors.console import Show
from watersmeet.connectors.datagen import DatagenConnector
from watersmeet.connectors.delta.connector import DeltaConnector
from watersmeet.connectors.deltas import with_deltas
from watersmeet.connectors.duckdb_table import DuckDbConnector
from watersmeet.connectors.embedded.connector import EmbeddedConnector
from watersmeet.connectors.files.connector import FilesConnector
from watersmeet.connectors.formats.envelope import DEBEZIUM
from watersmeet.connectors.jdbc.connector import JdbcConnector
from watersmeet.connectors.kafka.connector import KafkaConnector
from watersmeet.connectors.postgres.connector import PostgresConnector
from watersmeet.connectors.print_sink import PrintConnector
from watersmeet.connectors.sink_changelogs import Changelogs, sinks_of_changelogs
from watersmeet.connectors.stream_schema import to_columns
from watersmeet.errors import ConfigError, UnsupportedError, did_you_mean
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.real_time.sinks import LiveSink
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.store_folder import Place
from watersmeet.runtime.worker_records import RecordFormat
from watersmeet.settings.secrets import remember, require_references
from watersmeet.settings.seek import Seek, Starts

CONNECTORS: Mapping[str, Connector] = {
    connector.name: connector
    for connector in (
        EmbeddedConnector(),
        FilesConnector(),
        KafkaConnector(),
        JdbcConnector(),
        PostgresConnector(),
        DeltaConnector(),
        DuckDbConnector(),
        DatagenConnector(),
        PrintConnector(),
        BlackholeConnector(),
    )
}
_SINKS = {name: connector for name, connector in CONNECTORS.items() if isinstance(connector, SinkConnector)}
SINKS = tuple(_SINKS)


@dataclass(frozen=True, slots=True)
class Sink:
    """An open sink; writing the same batch again changes nothing."""

    write: WriteBatch


def check_connector(stream: StreamDef) -> None:
    """Raise ``ConfigError`` for an unknown connector, a wrong option or a secret in clear text.

    This contacts no other system.
    """
    connector = _connector(stream)
    require_references(stream.options)
    connector.check(stream)
    takes_keys = isinstance(connector, SinkConnector) and Changelogs.BY_KEY in connector.changelogs
    if stream.changes and not isinstance(connector, SourceConnector) and not takes_keys:
        raise ConfigError(
            f"{stream.connector} is a sink, and has no rows that change", hint="leave out MUTABLE, PRIMARY KEY and mode"
        )
    if stream.options.get("format") == DEBEZIUM and not stream.changes:
        raise ConfigError(
            f"format = '{DEBEZIUM}' brings changes, but {stream.name} only appends rows",
            hint="add PRIMARY KEY (…) SETTINGS mode = 'versioned_kv' or 'changelog_kv'",
            option="format",
        )


def open_source(
    spark: SparkSession,
    stream: StreamDef,
    workspace: Place,
    *,
    limited: bool,
    seek: Seek | None = None,
    starts: Starts | None = None,
    live: bool = False,
    newest_only: bool = False,
    pieces: str | None = None,
) -> Source:
    """Return the stream as a source; for the parameters see ``Reading``.

    Raises ``ConfigError`` for options and ``ConnectorError`` where the source cannot be reached.
    """
    connector = _connector(stream)
    if not isinstance(connector, SourceConnector):
        raise UnsupportedError(f"{stream.name} is a sink ({stream.connector}): it cannot be read")
    remember(stream.options)
    source = connector.open_source(Reading(spark, stream, workspace, limited, seek, starts, live, newest_only, pieces))
    records, followed = source.records, source.live
    if records is not None:
        records = replace(records, format=_with_deltas(records.format, stream))
    if followed is not None:
        followed = replace(followed, format=_with_deltas(followed.format, stream))
    return replace(source, frame=with_deltas(source.frame, stream), records=records, live=followed)


def limits_batches(stream: StreamDef) -> bool:
    """Return whether a batch may leave out rows of the stream that are there; raises ``ConfigError`` for options."""
    connector = _connector(stream)
    return not isinstance(connector, SourceConnector) or connector.limits_batches(stream)


def _with_deltas(format: RecordFormat, stream: StreamDef) -> RecordFormat:
    by_spark = format.by_spark
    return replace(format, by_spark=lambda raw: with_deltas(by_spark(raw), stream))


def open_stored(spark: SparkSession, stream: StreamDef, workspace: Place) -> DataFrame:
    """Return the rows that the stream has now, as a batch source frame.

    Raises as ``open_source`` does, and ``UnsupportedError`` for a connector without stored rows.
    """
    connector = _connector(stream)
    if not isinstance(connector, StoredConnector):
        stored = [name for name, each in CONNECTORS.items() if isinstance(each, StoredConnector)]
        raise UnsupportedError(
            f"{stream.name} ({stream.connector}) has no rows that table(…) could read",
            hint=f"table(…) reads streams of these connectors: {', '.join(stored)}",
        )
    if not stream.columns:
        raise UnsupportedError(
            f"{stream.name} declares no columns, so its rows cannot be read", hint="create it with its columns"
        )
    remember(stream.options)
    return with_deltas(connector.open_stored(Reading(spark, stream, workspace)), stream)


def check_seek(stream: StreamDef, seek_to: str) -> None:
    """Raise ``ConfigError`` for a stream that does not know when its rows arrived."""
    if not isinstance(CONNECTORS.get(stream.connector), StoredConnector):
        what = "a DataFrame that was registered" if stream.connector == FRAME else f"a stream of {stream.connector}"
        raise ConfigError(
            f"seek_to = '{seek_to}': {stream.name} is {what}, so when its rows arrived is not known",
            hint="leave seek_to out, or test the event time in WHERE",
            option="seek_to",
        )


def check_sink(stream: StreamDef, *, changelog: bool) -> None:
    """Raise ``UnsupportedError`` where the stream takes no results, or none with retractions.

    This contacts no other system.
    """
    connector = _sink(stream)
    connector.check(stream)
    if stream.options.get("format") == DEBEZIUM:
        raise UnsupportedError(f"{stream.name}: format {DEBEZIUM} is for reading changes, not for writing them")
    if changelog and not connector.takes_changelog(stream):
        taking = sinks_of_changelogs({name: each.changelogs for name, each in _SINKS.items()})
        raise UnsupportedError(
            f"{stream.name} ({stream.connector}) only appends, but this query emits corrections",
            hint=f"use a sink that takes a changelog: {taking}; or EMIT FINAL, where results can be final",
        )


def open_sink(stream: StreamDef, workspace: Place, *, changelog: bool, show: Show, tried: Tried = once) -> Sink:
    """Return the stream as a sink; for ``tried`` see ``Writing``.

    Raises as ``check_sink`` does, and ``ConnectorError`` where the sink cannot be reached or does not fit the stream.
    """
    check_sink(stream, changelog=changelog)
    remember(stream.options)
    return Sink(_sink(stream).open_sink(Writing(stream, workspace, changelog, show, tried)))


def reach_sink(spark: SparkSession, stream: StreamDef) -> None:
    """Raise ``SinkOutageError`` if the system to which a stream is written is known not to answer now."""
    _sink(stream).reach(spark, stream)


def open_live_sink(
    stream: StreamDef, workspace: Place, plan: PhysicalPlan, columns: Sequence[str], show: Show
) -> LiveSink:
    """Return the stream as a sink for the results of a plan in real time, into its ``columns`` (empty: all).

    Raises as ``open_sink`` does, and ``UnsupportedError`` if the stream cannot be written to in real time.
    """
    check_sink(stream, changelog=plan.weighted)
    remember(stream.options)
    sink = _sink(stream).open_live_sink(Writing(stream, workspace, plan.weighted, show))
    return replace(sink, rows=lambda rows: to_columns(rows, stream, columns))


def _sink(stream: StreamDef) -> SinkConnector:
    connector = _connector(stream)
    if not isinstance(connector, SinkConnector):
        raise UnsupportedError(f"{stream.name} is a source ({stream.connector}): nothing can be written to it")
    return connector


def _connector(stream: StreamDef) -> Connector:
    found = CONNECTORS.get(stream.connector)
    if found is None:
        known = [name for name in CONNECTORS if name != EMBEDDED]
        raise ConfigError(f"there is no connector {stream.connector!r}", hint=did_you_mean(stream.connector, known))
    return found
