"""Connectors by name: how a stream's definition becomes a source or a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, StructType, TimestampType

from watersmeet.catalog.streams import EMBEDDED, FRAME, StreamDef, StreamMode
from watersmeet.columns import SEQUENCE, STORED_FRONTIER, TP_DELTA, TP_TIME
from watersmeet.connectors import console, datagen, delta, files, jdbc, kafka
from watersmeet.connectors.changelogs import Changelogs, sinks_of_changelogs
from watersmeet.connectors.changes import DELTA_FIELD, with_deltas
from watersmeet.connectors.embedded import EmbeddedLog
from watersmeet.connectors.envelope import DEBEZIUM
from watersmeet.connectors.upsert import collected, net_frame
from watersmeet.errors import ConfigError, UnsupportedError, did_you_mean
from watersmeet.runtime.dataflow import Source
from watersmeet.settings.secrets import remember, require_references
from watersmeet.settings.seek import Seek

WriteBatch: TypeAlias = Callable[[DataFrame, int, str], object]
"""Writes the rows of a batch; then come its number, and a key that names query and batch."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Takes the rows of one batch; taking a batch again must change nothing."""

    write: WriteBatch


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source is opened with; ``limited`` honours limits on the size of a batch, ``seek`` says where to begin."""

    spark: SparkSession
    stream: StreamDef
    workspace: Path
    limited: bool = False
    seek: Seek | None = None

    @property
    def columns(self) -> StructType:
        """The declared columns."""
        return spark_schema(self.stream)

    @property
    def changing(self) -> StreamDef | None:
        """The stream, if its rows change."""
        return self.stream if self.stream.changes else None


@dataclass(frozen=True, slots=True)
class Writing:
    """What a sink is opened with; rows of a ``changelog`` carry ``_tp_delta``, ``show`` prints to the terminal."""

    stream: StreamDef
    workspace: Path
    changelog: bool
    show: console.Show

    @property
    def changing(self) -> StreamDef | None:
        """The stream, if it has one row for each key."""
        return self.stream if self.stream.changes else None


@dataclass(frozen=True, slots=True)
class Connector:
    """What a connector offers: a source, a sink, or both.

    ``check`` raises ``ConfigError`` for a stream's options, without reaching out to anything.  ``open_stored`` gives
    the rows that are there now, as a batch source frame; such a source knows when they arrived, and honours ``seek``.
    """

    check: Callable[[StreamDef], object]
    open_source: Callable[[Reading], Source] | None = None
    open_stored: Callable[[Reading], DataFrame] | None = None
    open_sink: Callable[[Writing], WriteBatch] | None = None
    changelogs: tuple[Changelogs, ...] = ()

    def takes_changelog(self, stream: StreamDef) -> bool:
        """Whether the stream is defined so that it does."""
        return any(way.fits(stream) for way in self.changelogs)


# -- the connectors --------------------------------------------------------------------------------------------------


def _no_options(what: str, hint: str | None = None) -> Callable[[StreamDef], None]:
    def check(stream: StreamDef) -> None:
        for name in stream.options:
            raise ConfigError(f"{what} has no option {name!r}: it takes none", hint=hint, option=name)

    return check


def _read_files(it: Reading) -> Source:
    frame = files.read_stream(
        it.spark, it.columns, it.stream.options, limited=it.limited, changing=it.changing, seek=it.seek
    )
    return Source(
        frame, files=files.parquet_files(it.spark, it.columns, it.stream.options, limited=it.limited, seek=it.seek)
    )


def _stored_files(it: Reading) -> DataFrame:
    return files.read_stored(it.spark, it.columns, it.stream.options, changing=it.changing)


def _write_files(it: Writing) -> WriteBatch:
    return lambda rows, batch_id, key: files.write_batch(rows, key, it.stream.options)


def _read_kafka(it: Reading) -> Source:
    parts = kafka.partitions(it.spark, it.stream.options)
    frame = kafka.read_stream(
        it.spark, it.columns, it.stream.options, limited=it.limited, changing=it.changing, seek=it.seek
    )
    return Source(frame, parts)


def _stored_kafka(it: Reading) -> DataFrame:
    kafka.partitions(it.spark, it.stream.options)  # says it better where the broker or the topic is missing
    return kafka.read_stored(it.spark, it.columns, it.stream.options, changing=it.changing)


def _write_kafka(it: Writing) -> WriteBatch:
    return lambda rows, batch_id, key: kafka.write_batch(
        rows, batch_id, it.stream.options, key=key, changing=it.changing
    )


def _read_embedded(it: Reading) -> Source:
    frame = embedded_log(it.stream, it.workspace).read_stream(it.spark, stored_schema(it.stream), it.seek)
    return Source(frame, stores_frontier=it.stream.derived and it.stream.has_watermark)


def _stored_embedded(it: Reading) -> DataFrame:
    return embedded_log(it.stream, it.workspace).read_stored(it.spark, stored_schema(it.stream))


def _write_embedded(it: Writing) -> WriteBatch:
    """Rows as they come: versions of their keys, where the stream changes; of a changelog what it comes to by key."""
    log = embedded_log(it.stream, it.workspace)
    if not it.changelog:
        return lambda rows, batch_id, key: log.append_frame(rows, key)
    # in mode changelog_kv each version is taken away by a -1 of its own, before a +1 that may be of the same time
    replaced = it.stream.mode is StreamMode.CHANGELOG
    return lambda rows, batch_id, key: log.append_frame(net_frame(rows, it.stream, keep_replaced=replaced), key)


def _write_jdbc(it: Writing) -> WriteBatch:
    sink = jdbc.open_table(it.stream)
    return lambda rows, batch_id, key: sink.write(collected(rows), batch_id)


def _write_delta(it: Writing) -> WriteBatch:
    delta.check_table(it.stream)
    return lambda rows, batch_id, key: delta.write_batch(collected(rows), batch_id, key, it.stream)


CONNECTORS: Mapping[str, Connector] = {
    EMBEDDED: Connector(
        check=_no_options("a stream without a connector", hint="add connector = '…' to WITH"),
        open_source=_read_embedded,
        open_stored=_stored_embedded,
        open_sink=_write_embedded,
        changelogs=(Changelogs.BY_KEY,),
    ),
    "files": Connector(
        check=lambda stream: files.options_of(stream.options),
        open_source=_read_files,
        open_stored=_stored_files,
        open_sink=_write_files,
        changelogs=(Changelogs.IF_ASKED,),
    ),
    "kafka": Connector(
        check=kafka.check_options,
        open_source=_read_kafka,
        open_stored=_stored_kafka,
        open_sink=_write_kafka,
        changelogs=(Changelogs.BY_KEY, Changelogs.IF_ASKED),
    ),
    "jdbc": Connector(check=jdbc.check_options, open_sink=_write_jdbc, changelogs=(Changelogs.BY_KEY,)),
    "delta": Connector(check=delta.check_options, open_sink=_write_delta, changelogs=(Changelogs.BY_KEY,)),
    "datagen": Connector(
        check=lambda stream: datagen.options_of(stream.options),
        open_source=lambda it: Source(datagen.read_stream(it.spark, it.columns, it.stream.options)),
    ),
    "print": Connector(
        check=_no_options("print"),
        open_sink=lambda it: (
            lambda rows, batch_id, key: console.print_batch(rows, it.show, batch_id, changelog=it.changelog)
        ),
        changelogs=(Changelogs.ALWAYS,),
    ),
    "blackhole": Connector(
        check=_no_options("blackhole"),
        open_sink=lambda it: lambda rows, batch_id, key: rows.write.format("noop").mode("overwrite").save(),
        changelogs=(Changelogs.ALWAYS,),
    ),
}
SINKS = tuple(name for name, connector in CONNECTORS.items() if connector.open_sink is not None)


# -- opening ---------------------------------------------------------------------------------------------------------


def check_connector(stream: StreamDef) -> None:
    """Raise ``ConfigError`` for a connector or an option that is not known, without reaching out to anything.

    So too for a secret that is written out.
    """
    connector = _connector(stream)
    require_references(stream.options)
    connector.check(stream)
    if stream.changes and connector.open_source is None and Changelogs.BY_KEY not in connector.changelogs:
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
    spark: SparkSession, stream: StreamDef, workspace: Path, *, limited: bool, seek: Seek | None = None
) -> Source:
    """The stream as a source; ``limited`` honours limits on the size of a batch, ``seek`` says where to begin.

    Raises ``ConfigError`` for options and ``ConnectorError`` where the source cannot be reached.
    """
    connector = _connector(stream)
    if connector.open_source is None:
        raise UnsupportedError(f"{stream.name} is a sink ({stream.connector}): it cannot be read")
    remember(stream.options)
    source = connector.open_source(Reading(spark, stream, workspace, limited, seek))
    return replace(source, frame=with_deltas(source.frame, stream))


def open_stored(spark: SparkSession, stream: StreamDef, workspace: Path) -> DataFrame:
    """The rows that the stream has now, as a batch source frame.

    Raises as ``open_source`` does, and ``UnsupportedError`` for a connector that has no such rows.
    """
    connector = _connector(stream)
    if connector.open_stored is None:
        stored = [name for name, each in CONNECTORS.items() if each.open_stored is not None]
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
    """Raise ``ConfigError`` for a stream that does not tell when its rows arrived."""
    connector = CONNECTORS.get(stream.connector)
    if connector is None or connector.open_stored is None:
        what = "a DataFrame that was registered" if stream.connector == FRAME else f"a stream of {stream.connector}"
        raise ConfigError(
            f"seek_to = '{seek_to}': {stream.name} is {what}, so when its rows arrived is not known",
            hint="leave seek_to out, or test the event time in WHERE",
            option="seek_to",
        )


def check_sink(stream: StreamDef, *, changelog: bool) -> None:
    """Raise ``UnsupportedError`` where the stream cannot take results, or no results with corrections.

    Nothing is reached out to.
    """
    connector = _connector(stream)
    if connector.open_sink is None:
        raise UnsupportedError(f"{stream.name} is a source ({stream.connector}): nothing can be written to it")
    connector.check(stream)
    if stream.options.get("format") == DEBEZIUM:
        raise UnsupportedError(f"{stream.name}: format {DEBEZIUM} is for reading changes, not for writing them")
    if changelog and not connector.takes_changelog(stream):
        taking = sinks_of_changelogs({name: each.changelogs for name, each in CONNECTORS.items()})
        raise UnsupportedError(
            f"{stream.name} ({stream.connector}) only appends, but this query emits corrections",
            hint=f"use a sink that takes a changelog: {taking}; or EMIT FINAL, where results can be final",
        )


def open_sink(stream: StreamDef, workspace: Path, *, changelog: bool, show: console.Show) -> Sink:
    """The stream as a sink.

    Raises as ``check_sink`` does, and ``ConnectorError`` where the sink cannot be reached or does not fit the stream.
    """
    check_sink(stream, changelog=changelog)
    opened = _connector(stream).open_sink
    assert opened is not None  # see check_sink
    remember(stream.options)
    return Sink(opened(Writing(stream, workspace, changelog, show)))


def frame_source(frame: DataFrame, stream: StreamDef, order: str | None = None) -> Source:
    """Any streaming DataFrame as a source.

    Rows have the order of the column ``order``; ties, and rows without one, fall to a hash of the row.
    """
    hashed = F.lpad(F.hex(F.xxhash64(*(F.col(f"`{name}`") for name in frame.columns))), 16, "0")
    place = hashed if order is None else F.concat(_rank(F.col(f"`{order}`"), frame.schema[order].dataType), hashed)
    hidden = {SEQUENCE: F.encode(place, "UTF-8")}
    if TP_TIME not in frame.columns:
        hidden[TP_TIME] = F.current_timestamp()
    frame = frame.withColumns(hidden)
    return Source(with_deltas(frame, stream), stores_frontier=STORED_FRONTIER in frame.columns)


def check_order(name: str, order: str, schema: StructType) -> None:
    """Raise ``ConfigError`` for a column that cannot order the rows of a frame."""
    if order not in schema.fieldNames():
        raise ConfigError(
            f"{name} has no column {order}", hint=did_you_mean(order, schema.fieldNames()), option="order"
        )
    if not isinstance(schema[order].dataType, IntegralType | TimestampType):
        raise ConfigError(
            f"{order} is {schema[order].dataType.simpleString()}: rows are ordered by a whole number or a timestamp",
            option="order",
        )


def _rank(column: Column, kind: DataType) -> Column:
    """A number as text that sorts as it does: with its sign bit turned, in hexadecimal; NULL first."""
    number = F.unix_micros(column) if isinstance(kind, TimestampType) else column.cast("bigint")
    return F.coalesce(F.lpad(F.hex(number.bitwiseXOR(F.lit(-(2**63)).cast("bigint"))), 16, "0"), F.lit("0" * 16))


def embedded_log(stream: StreamDef, workspace: Path) -> EmbeddedLog:
    """The log of an embedded stream."""
    return EmbeddedLog(workspace / "streams" / stream.name.lower())


def _connector(stream: StreamDef) -> Connector:
    found = CONNECTORS.get(stream.connector)
    if found is None:
        known = [name for name in CONNECTORS if name != EMBEDDED]
        raise ConfigError(f"there is no connector {stream.connector!r}", hint=did_you_mean(stream.connector, known))
    return found


# -- columns ---------------------------------------------------------------------------------------------------------


def spark_schema(stream: StreamDef) -> StructType:
    """The declared columns as Spark knows them; needs a running session."""
    ddl = ", ".join(f"`{column.name}` {column.type}" for column in stream.columns)
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def stored_schema(stream: StreamDef) -> StructType:
    """The columns that are written: of an embedded stream that changes ``_tp_delta`` too, which INSERT can name."""
    columns = spark_schema(stream)
    keeps_delta = stream.changes and stream.connector == EMBEDDED and stream.column(TP_DELTA) is None
    return StructType([*columns.fields, DELTA_FIELD]) if keeps_delta else columns


def to_columns(frame: DataFrame, target: StreamDef, chosen: Sequence[str]) -> DataFrame:
    """The rows under the names and types of the target's columns, by position; columns not chosen are NULL.

    A target that declares no columns takes the rows as they are.  What the query did not select itself (``_tp_delta``
    of a changelog, ``_frontier``) stays at the end.  In a target that changes, ``_tp_delta`` is the changelog's, else
    what was chosen, else +1; ``UnsupportedError`` where a changelog meets something else that was chosen.
    """
    if not target.columns or target.derived:
        return frame
    wanted = chosen or [column.name for column in target.columns]
    selected = [name for name in frame.columns if name != STORED_FRONTIER][: len(wanted)]
    extra = [name for name in frame.columns if name not in selected]
    given = {column.lower(): name for column, name in zip(wanted, selected, strict=True)}
    weight = next((name for name in frame.columns if name.lower() == TP_DELTA), None) if target.changes else None
    if weight is not None:
        extra = [name for name in extra if name != weight]
        if given.setdefault(TP_DELTA, weight) != weight:
            raise UnsupportedError(
                f"{target.name}: its column {TP_DELTA} takes that of the query's changelog, and nothing else",
                hint=f"select {TP_DELTA} for it, or leave the column out: INSERT INTO {target.name} (column, …)",
            )
    items = []
    for field in stored_schema(target):
        source = given.get(field.name.lower())
        default = F.lit(1 if field.name == TP_DELTA else None)
        column = default if source is None else F.col(f"`{source}`")
        items.append(column.cast(field.dataType).alias(field.name))
    if weight is not None and TP_DELTA not in stored_schema(target).names:
        items.append(F.col(f"`{weight}`").alias(TP_DELTA))
    return frame.select(*items, *(F.col(f"`{name}`") for name in extra))
