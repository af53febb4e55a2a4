"""The streams of a session: those of the workspace's catalogue, and Spark DataFrames registered under a name."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from watersmeet.catalog import EMBEDDED, Catalog, StreamColumn, StreamDef
from watersmeet.columns import TP_TIME
from watersmeet.connectors import registry
from watersmeet.connectors.embedded import EmbeddedLog
from watersmeet.errors import BindError, CatalogError, ConfigError, did_you_mean
from watersmeet.plan.physical import PhysicalPlan
from watersmeet.plan.times import TimeUnit
from watersmeet.results import Message, Table
from watersmeet.runtime.dataflow import Source
from watersmeet.runtime.storage import Storage
from watersmeet.sql.define import check_name, define_stream
from watersmeet.sql.statements import CreateStream, Drop, Statement

_LATE_COLUMNS = tuple(StreamColumn(name=name, type="STRING") for name in ("source", "reason", "raw"))


class Streams:
    """Definitions by name, case aside, and the way from a definition to its rows."""

    def __init__(self, spark: SparkSession, workspace: Path) -> None:
        self._spark = spark
        self._workspace = workspace
        self.catalog = Catalog(workspace)
        self._registered: dict[str, tuple[StreamDef, DataFrame]] = {}

    def by_name(self) -> dict[str, StreamDef]:
        """All streams by lower-case name; a registered frame hides a stored stream."""
        stored = {stream.name.lower(): stream for stream in self.catalog.streams().values()}
        return {**stored, **{name: stream for name, (stream, _) in self._registered.items()}}

    def require(self, name: str, statement: Statement) -> StreamDef:
        """The stream; ``CatalogError`` with the nearest names, and the statement's place, where there is none."""
        known = self.by_name()
        if (stream := known.get(name.lower())) is None:
            raise CatalogError(
                f"there is no stream {name}",
                hint=did_you_mean(name, [each.name for each in known.values()]),
                position=statement.position,
            )
        return stream

    def register(self, stream: StreamDef, frame: DataFrame) -> None:
        """Make a Spark streaming DataFrame a stream, for as long as the session lives."""
        self._registered[stream.name.lower()] = (stream, frame)

    # -- statements ------------------------------------------------------------------------------------------------

    def create(self, statement: CreateStream) -> Message:
        """CREATE STREAM with columns.  A job that runs again creates its streams again: that is no error."""
        stream = define_stream(statement)
        check_connector(stream, statement)
        if stream.connector != EMBEDDED and not stream.columns and stream.connector not in registry.SINKS:
            raise BindError(f"{stream.name} needs columns", position=statement.position)
        known = self.catalog.get(stream.name)
        if known is not None and known.model_copy(update={"definition": stream.definition}) == stream:
            return Message(f"stream {stream.name} is there already")
        try:
            added = self.catalog.add(stream, if_not_exists=statement.if_not_exists)
        except CatalogError as error:
            error.position = statement.position
            raise
        if added and stream.connector == EMBEDDED:
            registry.embedded_log(stream, self._workspace)
        return Message(f"created stream {stream.name}" if added else f"stream {stream.name} is there already")

    def show(self) -> Table:
        """SHOW STREAMS."""
        streams = sorted(self.by_name().values(), key=lambda stream: stream.name.lower())
        rows: list[tuple[str, ...]] = [
            (stream.name, stream.connector, stream.time_column, "query" if stream.derived else "") for stream in streams
        ]
        return Table(("stream", "connector", "event time", "fed by"), rows)

    def describe(self, stream: StreamDef) -> Table:
        """DESCRIBE."""
        rows: list[tuple[str, ...]] = []
        for column in stream.columns:
            is_time = column.name == stream.time_column
            note = f"event time ({stream.time_unit.value}), delay {_delay_text(stream)}" if is_time else ""
            rows.append((column.name, column.type, note))
        if stream.time_column == TP_TIME:
            rows.append((TP_TIME, "TIMESTAMP", "event time: arrival"))
        return Table(("column", "type", "note"), rows)

    def drop(self, statement: Drop) -> Message:
        """DROP STREAM: the rows of an embedded stream first, so that no later stream of that name finds them."""
        name = statement.name
        if name.lower() in self._registered:
            del self._registered[name.lower()]
            return Message(f"dropped stream {name}")
        if self.catalog.get(name) is None and statement.if_exists:
            return Message(f"there is no stream {name}")
        stream = self.require(name, statement)
        storage = Storage(self._spark)
        if stream.derived:
            storage.delete(str(self._workspace / "queries" / stream.name))
        if stream.connector == EMBEDDED:
            storage.delete(str(self._workspace / "streams" / stream.name.lower()))
        self.catalog.drop(name)
        return Message(f"dropped stream {stream.name}")

    # -- rows ------------------------------------------------------------------------------------------------------

    def sources(self, plan: PhysicalPlan, *, limited: bool) -> dict[str, Source]:
        """The streams that a plan reads, as sources by lower-case name; ``limited`` honours batch sizes."""
        found: dict[str, Source] = {}
        for stream in (part.input.stream for part in plan.inputs):
            key = stream.name.lower()
            if key in found:
                continue
            if key in self._registered:
                found[key] = registry.frame_source(self._registered[key][1])
            else:
                found[key] = registry.open_source(self._spark, stream, self._workspace, limited=limited)
        return found

    def late_log(self, name: str) -> EmbeddedLog:
        """The embedded stream for late rows, made where it is not there."""
        check_name(name)
        if self.catalog.get(name) is None:
            self.catalog.add(StreamDef(name=name, columns=_LATE_COLUMNS), if_not_exists=True)
        stream = self.catalog.require(name)
        if stream.connector != EMBEDDED or stream.derived or stream.columns != _LATE_COLUMNS:
            raise ConfigError(
                f"late_rows = '{name}': that stream cannot take late rows",
                hint="name an embedded stream (source STRING, reason STRING, raw STRING), or one that is not there yet",
            )
        return registry.embedded_log(stream, self._workspace)


def check_connector(stream: StreamDef, statement: CreateStream) -> None:
    """Check the connector and its options, naming the place of what is wrong."""
    try:
        registry.check_connector(stream)
    except ConfigError as error:
        places = statement.options_positions
        error.position = places.get(error.option or "connector", places.get("connector", statement.position))
        raise


def _delay_text(stream: StreamDef) -> str:
    if stream.time_unit is TimeUnit.ROWS:
        return f"{stream.delay} rows"
    return f"{stream.delay / 1_000_000:g} seconds"
