"""The streams and tables of a session: those in the workspace's catalogue, and registered DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from watersmeet.bind.define import check_name, define_stream, define_table
from watersmeet.bind.indexes import with_index, without_index
from watersmeet.bind.side_streams import SIDE_COLUMNS, check_side_stream, check_side_streams
from watersmeet.catalog.catalog import Catalog, is_same
from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.connectors import registry
from watersmeet.connectors.dataframe_source import frame_source
from watersmeet.connectors.embedded.connector import EmbeddedLog, embedded_log
from watersmeet.errors import (
    BindError,
    CatalogError,
    ConfigError,
    Position,
    UnsupportedError,
    WatersmeetError,
    did_you_mean,
)
from watersmeet.lookup.source import LookupSource, RowsSource
from watersmeet.lookup.tables import open_table, table_options
from watersmeet.plan.live_checks import check_live
from watersmeet.plan.newest_rows import read_by_newest_row
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.store_folder import Place
from watersmeet.runtime.stored_catalog import StoredCatalog
from watersmeet.session.listings import stream_list, table_list
from watersmeet.session.results import Message, Table
from watersmeet.settings.seek import EARLIEST, Seek, Starts
from watersmeet.sql.statements import (
    CreateIndex,
    CreateStream,
    CreateTable,
    Drop,
    DropIndex,
    InsertHistorical,
    InsertSelect,
    InsertValues,
    Statement,
)


class Streams:
    """Definitions by name, ignoring case, and the rows behind them."""

    def __init__(self, spark: SparkSession, workspace: Place) -> None:
        self.spark = spark
        self._workspace = workspace
        self.catalog = Catalog(workspace if isinstance(workspace, Path) else StoredCatalog(workspace))
        self._registered: dict[str, tuple[StreamDef, DataFrame, str | None]] = {}
        self._tables: dict[str, tuple[StreamDef, RowsSource | None]] = {}
        self._redefined: Mapping[str, StreamDef] = {}

    def by_name(self) -> dict[str, StreamDef]:
        """All streams and tables by lower-case name; a registered DataFrame hides a stored stream."""
        stored = {stream.name.lower(): stream for stream in self.catalog.streams().values()}
        frames = {name: stream for name, (stream, _, _) in self._registered.items()}
        tables = {name: table for name, (table, _) in self._tables.items()}
        return {**stored, **self._redefined, **frames, **tables}

    def redefine(self, streams: Mapping[str, StreamDef]) -> None:
        """Let these streams, by lower-case name, count instead of those in the catalogue, which stays as it is."""
        self._redefined = streams

    def require(self, name: str, statement: Statement) -> StreamDef:
        """The stream; ``CatalogError`` with the nearest names and the statement's position if there is none."""
        known = self.by_name()
        if (stream := known.get(name.lower())) is None:
            raise CatalogError(
                f"there is no stream {name}",
                hint=did_you_mean(name, [each.name for each in known.values()]),
                position=statement.position,
            )
        return stream

    def require_target(self, statement: InsertValues | InsertSelect | InsertHistorical) -> StreamDef:
        """The stream to write to; ``UnsupportedError`` for an external table."""
        stream = self.require(statement.stream, statement)
        if stream.outside:
            raise UnsupportedError(
                f"{stream.name} is an external table: queries only look up rows in it", position=statement.position
            )
        return stream

    def register(self, stream: StreamDef, frame: DataFrame, order: str | None = None) -> None:
        """Register a streaming DataFrame while the session lives; ``order`` is the column that breaks ties."""
        self._tables.pop(stream.name.lower(), None)
        self._registered[stream.name.lower()] = (stream, frame, order)

    def register_table(self, table: StreamDef, rows: RowsSource | None) -> None:
        """Register an external table, or its rows, while the session lives."""
        self._registered.pop(table.name.lower(), None)
        self._tables[table.name.lower()] = (table, rows)

    def open_table(self, table: StreamDef, columns: Sequence[str]) -> LookupSource:
        """The source that lookups of a query read a table from."""
        _, rows = self._tables.get(table.name.lower(), (table, None))
        if rows is not None:
            return RowsSource(rows.name, rows.rows.select(columns))
        return open_table(table, columns)

    # -- statements ------------------------------------------------------------------------------------------------

    def create(self, statement: CreateStream) -> Message:
        """CREATE STREAM with columns; no error if the same stream exists, because a job that runs again repeats it."""
        stream = define_stream(statement)
        check_connector(stream, statement)
        if stream.connector != EMBEDDED and not stream.columns and stream.connector not in registry.SINKS:
            raise BindError(f"{stream.name} needs columns", position=statement.position)
        known = self.catalog.get(stream.name)
        if known is not None and is_same(known, stream):
            return Message(f"stream {stream.name} is there already")
        try:
            added = self.catalog.add(stream, if_not_exists=statement.if_not_exists)
        except CatalogError as error:
            error.position = statement.position
            raise
        if added and stream.connector == EMBEDDED:
            embedded_log(stream, self._workspace)
        return Message(f"created stream {stream.name}" if added else f"stream {stream.name} is there already")

    def create_table(self, statement: CreateTable) -> Message:
        """CREATE TABLE; no error if the same table exists, because a job that runs again repeats it."""
        table = define_table(statement)
        with option_positions(statement):
            table_options(table)
        try:
            added = self.catalog.add(table, if_not_exists=statement.if_not_exists)
        except CatalogError as error:
            error.position = statement.position
            raise
        return Message(f"created table {table.name}" if added else f"table {table.name} is there already")

    def change_indexes(self, statement: CreateIndex | DropIndex) -> Message:
        """CREATE INDEX and DROP INDEX; queries that start later use the change."""
        stream = self.require(statement.stream, statement)
        if isinstance(statement, CreateIndex):
            changed, done = with_index(stream, statement), "created"
        else:
            changed, done = without_index(stream, statement), "dropped"
        if (registered := self._registered.get(stream.name.lower())) is not None:
            self._registered[stream.name.lower()] = (changed, *registered[1:])
        else:
            self.catalog.replace(changed)
        return Message(f"{done} index {statement.name} on {stream.name}" if changed != stream else "nothing to do")

    def show(self) -> Table:
        """SHOW STREAMS."""
        return stream_list(self._sorted(outside=False))

    def show_tables(self) -> Table:
        """SHOW TABLES."""
        return table_list(self._sorted(outside=True))

    def _sorted(self, *, outside: bool) -> list[StreamDef]:
        found = (each for each in self.by_name().values() if each.outside is outside)
        return sorted(found, key=lambda each: each.name.lower())

    def drop(self, statement: Drop) -> Message:
        """DROP STREAM and DROP TABLE.

        The rows of an embedded stream are deleted first, so that no later stream of that name finds them.  An external
        table itself stays.
        """
        name, kind = statement.name, statement.kind.lower()
        known = self.by_name().get(name.lower())
        if known is None and statement.if_exists:
            return Message(f"there is no {kind} {name}")
        if known is None or known.kind != kind:
            alike = [each.name for each in self._sorted(outside=kind == "table")]
            hint = did_you_mean(name, alike) if known is None else f"DROP {known.kind.upper()} {name}"
            raise CatalogError(f"there is no {kind} {name}", hint=hint, position=statement.position)
        for registered in (self._registered, self._tables):
            if registered.pop(name.lower(), None) is not None:
                return Message(f"dropped {kind} {name}")
        stream = known
        storage = Storage(self.spark)
        if stream.derived:
            storage.delete(str(self._workspace / "queries" / stream.name))
        if stream.connector == EMBEDDED and not stream.outside:
            storage.delete(str(self._workspace / "streams" / stream.name.lower()))
        self.catalog.drop(name)
        return Message(f"dropped {kind} {stream.name}")

    # -- rows ------------------------------------------------------------------------------------------------------

    def sources(
        self,
        plan: PhysicalPlan,
        *,
        limited: bool,
        seek: Seek | None = None,
        starts: Starts | None = None,
        live: SparkSession | None = None,
        pieces: str | None = None,
    ) -> dict[str, Source]:
        """Open the streams that a plan reads, by lower-case name.

        ``limited`` applies the limits on batch sizes, ``seek`` is where reading begins, ``starts`` where it has begun
        (None: Spark keeps that), ``live`` is the session of a query in real time, ``pieces`` the folder of what its
        checkpoint keeps of streams.
        """
        found: dict[str, Source] = {}
        newest_only = read_by_newest_row(plan)
        for stream in (part.input.stream for part in plan.streams):
            key = stream.name.lower()
            if key in found:
                continue
            if key in self._registered:
                registered, frame, order = self._registered[key]
                found[key] = frame_source(frame, registered, order)
            else:
                found[key] = registry.open_source(
                    live or self.spark,
                    stream,
                    self._workspace,
                    limited=limited,
                    seek=seek,
                    starts=starts,
                    live=live is not None,
                    newest_only=key in newest_only,
                    pieces=pieces,
                )
        return found

    def limit_batches(self, plan: PhysicalPlan) -> bool:
        """Whether a batch may leave out rows that are there, of any stream that a plan reads."""
        streams = [part.input.stream for part in plan.streams]
        return any(each.name.lower() in self._registered or registry.limits_batches(each) for each in streams)

    def check_settings(self, plan: PhysicalPlan, positions: Mapping[str, Position]) -> None:
        """Raise ``ConfigError`` or ``UnsupportedError``, with its position, if a setting does not fit a stream.

        One that is read may not support ``seek_to`` or real time, and one that is named for late or evicted rows not
        store them.
        """
        settings = plan.query.settings
        check_live(plan, positions)
        check_side_streams(settings, self.by_name(), positions)
        if settings.seek_to is None or settings.seek_to == EARLIEST:
            return
        try:
            for part in plan.streams:
                registry.check_seek(part.input.stream, settings.seek_to)
        except ConfigError as error:
            error.position = positions.get("seek_to")
            raise

    def check_tables(self, plan: PhysicalPlan) -> None:
        """Raise ``ConnectorError``, with its place, where an outside table is not what it was declared to be.

        One that cannot be reached just now is no error: the query will ask again, as the table's options say.  Nor is a
        secret that only the workers have.
        """
        for operator in plan.operators:
            operator.check()

    def stored(self, stream: StreamDef) -> DataFrame:
        """The stored rows of a stream, as a batch source frame; ``UnsupportedError`` if it stores none."""
        return registry.open_stored(self.spark, stream, self._workspace)

    def side_log(self, name: str, setting: str) -> EmbeddedLog:
        """The embedded stream that a setting names for late or evicted rows; it is created if it does not exist.

        Raises ``ConfigError`` if the stream exists with other columns or another connector.
        """
        check_name(name)
        if self.catalog.get(name) is None:
            self.catalog.add(StreamDef(name=name, columns=SIDE_COLUMNS), if_not_exists=True)
        stream = self.catalog.require(name)
        check_side_stream(stream, setting)
        return embedded_log(stream, self._workspace)


def check_connector(stream: StreamDef, statement: CreateStream) -> None:
    """Check the connector and its options; errors have the position of the wrong option."""
    with option_positions(statement):
        registry.check_connector(stream)


def check_corrections(target: StreamDef, plan: PhysicalPlan, statement: InsertSelect) -> None:
    """Raise ``UnsupportedError`` with its position if the results carry corrections and the target is append-only."""
    try:
        registry.check_sink(target, changelog=plan.weighted)
    except WatersmeetError as error:
        error.position = statement.position
        raise


@contextmanager
def option_positions(statement: CreateStream | CreateTable) -> Iterator[None]:
    """Add the option's position to a ``ConfigError`` raised meanwhile."""
    try:
        yield
    except ConfigError as error:
        known = statement.options_positions
        error.position = known.get(error.option or "connector", known.get("connector", statement.position))
        raise
