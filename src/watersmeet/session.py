"""The session: streams, queries and their results, on the user's Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from watersmeet.catalog import EMBEDDED, Catalog, StreamColumn, StreamDef
from watersmeet.columns import TP_TIME
from watersmeet.config import parse_settings
from watersmeet.connectors import console, registry
from watersmeet.connectors.embedded import EmbeddedLog
from watersmeet.connectors.insert import insert_values
from watersmeet.engine.routing import bucket_numbers
from watersmeet.errors import BindError, CatalogError, ConfigError, UnsupportedError, WatersmeetError
from watersmeet.plan.explain import explain
from watersmeet.plan.lineage import derived_stream, event_time_output
from watersmeet.plan.physical import PhysicalPlan, plan
from watersmeet.plan.times import TimeUnit
from watersmeet.results import Message, Plan, Result, Started, Stream, Table
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.dataflow import Dataflow, Resources, Source, build
from watersmeet.runtime.query import Job, QueryMode, RunningQuery, start_query, translate
from watersmeet.runtime.side import keep_late_rows
from watersmeet.runtime.storage import Storage
from watersmeet.spark import open_spark
from watersmeet.sql.bind import bind
from watersmeet.sql.define import check_name, check_target, define_stream
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import (
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    InsertSelect,
    InsertValues,
    Query,
    Select,
    Show,
    ShowCreate,
    Statement,
    StopQuery,
)

_PRINT = StreamDef(name="print", columns=(), connector="print")


def connect(
    spark: SparkSession | None = None,
    workspace: str | Path = ".watersmeet",
    *,
    packages: Iterable[str] = (),
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Session:
    """A session on ``spark``, or on a new local Spark.

    ``workspace`` is the folder of the catalogue, embedded streams and checkpoints.  ``packages`` are names (``kafka``,
    ``avro``, ``protobuf``) or Maven coordinates that a new Spark loads, ``config`` further settings of it.  A session
    that is given gets the RocksDB state store, which the operators need, if it has not chosen a provider.
    """
    return Session(open_spark(spark, packages, master, config), Path(workspace))


class Session:
    """Carries out statements; its streams live in the catalogue of the workspace, or as frames that were registered."""

    def __init__(self, spark: SparkSession, workspace: Path) -> None:
        self.spark = spark
        self.workspace = workspace.absolute()
        self.catalog = Catalog(self.workspace)
        self.show: console.Show = console.show_plainly
        self._frames: dict[str, tuple[StreamDef, DataFrame]] = {}
        self._queries: dict[str, RunningQuery] = {}
        self._sources: dict[str, str] = {}

    # -- statements ------------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Result:
        """Carry out one or more statements; the result of the last one comes back (of a SELECT: a ``Stream``)."""
        result: Result | None = None
        for statement in parse(text):
            result = self._carry_out(statement, QueryMode.CONTINUOUS, None, start_selects=False)
        if result is None:
            raise BindError("there is no statement here")
        return result

    def run(self, text: str, mode: QueryMode = QueryMode.CONTINUOUS, checkpoint: str | None = None) -> Iterator[Result]:
        """Carry out the statements of a job one by one; a bare SELECT is started and prints its rows.

        ``checkpoint`` is the folder for the job's checkpoints, by default the workspace.
        """
        for statement in parse(text):
            yield self._carry_out(statement, mode, checkpoint, start_selects=True)

    def explain(self, text: str) -> str:
        """How a query would run: its windows, keys, state, and where each condition is tested."""
        (statement,) = parse(text)
        if isinstance(statement, Explain):
            statement = statement.statement
        if not isinstance(statement, Select | InsertSelect | CreateStream) or statement.query is None:
            raise UnsupportedError("EXPLAIN takes a query", position=statement.position)
        return explain(self._plan(statement.query))

    def register(
        self, name: str, frame: DataFrame, *, time: str | None = None, delay: str = "0 seconds", unit: str = "ms"
    ) -> StreamDef:
        """Make any streaming DataFrame a stream of this session.

        ``time`` is its event-time column (a timestamp, or a whole number of ``unit``), ``delay`` how far its rows may
        come out of order.
        """
        amount, _, word = delay.partition(" ")
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
        watermark = f", WATERMARK FOR `{time}` AS `{time}` - INTERVAL '{amount}' {word or 'SECONDS'}" if time else ""
        (statement,) = parse(f"CREATE STREAM `{name}` ({columns}{watermark})")
        assert isinstance(statement, CreateStream)
        integer = time is not None and frame.schema[time].dataType.typeName() in ("byte", "short", "integer", "long")
        if integer:
            statement.options["event_time_unit"] = unit
        stream = define_stream(statement).model_copy(update={"connector": "dataframe"})
        self._frames[name.lower()] = (stream, frame)
        return stream

    def queries(self) -> list[RunningQuery]:
        """The queries that this session has started."""
        return list(self._queries.values())

    def stop(self) -> None:
        """Stop all queries of this session; Spark itself goes on."""
        for query in self.queries():
            query.stop()

    # -- one statement ---------------------------------------------------------------------------------------------

    def _carry_out(
        self, statement: Statement, mode: QueryMode, checkpoint: str | None, *, start_selects: bool
    ) -> Result:
        match statement:
            case CreateStream(query=Query() as query):
                return self._create_as(statement, query, mode, checkpoint)
            case CreateStream():
                return self._create(statement)
            case InsertSelect():
                return self._insert(statement, mode, checkpoint)
            case Select() if start_selects:
                name = f"select_{_short_hash(statement.source)}"
                return self._start(name, self._plan(statement.query), statement.query, _PRINT, mode, checkpoint)
            case Select():
                return Stream(self._frame(statement.query))
            case Explain():
                return Plan(explain(self._plan(statement.query)))
            case CreateTable():
                raise UnsupportedError(
                    "CREATE TABLE (an outside table for lookups) is not supported yet", position=statement.position
                )
            case _:
                return self._manage(statement)

    def _manage(self, statement: InsertValues | Show | ShowCreate | Describe | Drop | StopQuery) -> Message | Table:
        """Statements that look at or change what there is."""
        match statement:
            case InsertValues():
                stream = self._stream(statement.stream, statement)
                count = insert_values(self.spark, stream, statement, self.workspace)
                return Message(f"{count} row{'s' if count != 1 else ''} into {stream.name}")
            case Show():
                return self._show(statement)
            case ShowCreate():
                return Table(("statement",), [(self._stream(statement.name, statement).definition,)])
            case Describe():
                return self._describe(statement)
            case Drop():
                return self._drop(statement)
            case StopQuery():
                return self._stop_query(statement)

    def _create(self, statement: CreateStream) -> Message:
        stream = define_stream(statement)
        try:
            registry.check_connector(stream)
        except ConfigError as error:
            error.position = statement.options_positions.get("connector", statement.position)
            raise
        if stream.connector != EMBEDDED and not stream.columns and stream.connector not in registry.SINKS:
            raise BindError(f"{stream.name} needs columns", position=statement.position)
        known = self.catalog.get(stream.name)
        same = known is not None and known.model_dump(exclude={"definition"}) == stream.model_dump(
            exclude={"definition"}
        )
        try:
            # a job that runs again creates its streams again
            added = not same and self.catalog.add(stream, if_not_exists=statement.if_not_exists)
        except CatalogError as error:
            error.position = statement.position
            raise
        if added and stream.connector == EMBEDDED:
            registry.embedded_log(stream, self.workspace)
        return Message(f"created stream {stream.name}" if added else f"stream {stream.name} is there already")

    def _create_as(self, statement: CreateStream, query: Query, mode: QueryMode, checkpoint: str | None) -> Result:
        check_name(statement.name, statement.position)
        physical = self._plan(query)
        known = self.catalog.get(statement.name)
        if known is not None and known.definition != statement.source:
            raise CatalogError(
                f"there is a stream {statement.name} already, with another definition",
                hint="use another name, or DROP STREAM it first",
                position=statement.position,
            )
        if known is None:
            frame = self._build(physical, self._open_sources(physical, limited=True)).frame
            columns = [(field.name, field.dataType.simpleString()) for field in frame.schema]
            stream = derived_stream(statement.name, physical.query, columns, statement.source)
            if statement.options:
                stream = stream.model_copy(
                    update={
                        "connector": statement.options.get("connector", EMBEDDED),
                        "options": {k: v for k, v in statement.options.items() if k != "connector"},
                    }
                )
                registry.check_connector(stream)
        else:
            stream = known
        started = self._start(stream.name, physical, query, stream, mode, checkpoint)
        if known is None:
            self.catalog.add(stream)
        return started

    def _insert(self, statement: InsertSelect, mode: QueryMode, checkpoint: str | None) -> Result:
        stream = self._stream(statement.stream, statement)
        if stream.derived:
            raise UnsupportedError(
                f"{stream.name} is fed by its own query (CREATE STREAM … AS)", position=statement.position
            )
        physical = self._plan(statement.query)
        check_target(stream, [column.name for column in physical.outputs], statement)
        name = self._query_name(f"into_{stream.name}", statement.source)
        return self._start(name, physical, statement.query, stream, mode, checkpoint, statement.columns)

    def _show(self, statement: Show) -> Table:
        if statement.what == "QUERIES":
            queries: list[tuple[str, ...]] = [
                (query.name, "running" if query.is_active else "ended", query.checkpoint) for query in self.queries()
            ]
            return Table(("query", "state", "checkpoint"), queries)
        if statement.what == "TABLES":
            return Table(("table",), [])
        streams = sorted(self._streams().values(), key=lambda stream: stream.name.lower())
        rows: list[tuple[str, ...]] = [
            (stream.name, stream.connector, stream.time_column, "query" if stream.derived else "") for stream in streams
        ]
        return Table(("stream", "connector", "event time", "fed by"), rows)

    def _describe(self, statement: Describe) -> Table:
        stream = self._stream(statement.name, statement)
        rows: list[tuple[str, ...]] = []
        for column in stream.columns:
            note = ""
            if column.name == stream.time_column:
                note = f"event time ({stream.time_unit.value}), delay {_delay_text(stream)}"
            if column.name in stream.primary_key:
                note = f"{note}, primary key".lstrip(", ")
            rows.append((column.name, column.type, note))
        if stream.time_column == "_tp_time":
            rows.append((TP_TIME, "TIMESTAMP", "event time: arrival"))
        return Table(("column", "type", "note"), rows)

    def _drop(self, statement: Drop) -> Message:
        name = statement.name
        if name.lower() in self._frames:
            del self._frames[name.lower()]
            return Message(f"dropped stream {name}")
        if self.catalog.get(name) is None and statement.if_exists:
            return Message(f"there is no stream {name}")
        running = [query for query in self.queries() if query.is_active and query.name.lower() == name.lower()]
        if running:
            raise CatalogError(
                f"{name} is being fed by a running query", hint=f"STOP QUERY {name} first", position=statement.position
            )
        try:
            stream = self.catalog.drop(name)
        except CatalogError as error:
            error.position = statement.position
            raise
        storage = Storage(self.spark)
        if stream.connector == EMBEDDED:
            storage.delete(str(self.workspace / "streams" / stream.name.lower()))
        if stream.derived:
            storage.delete(str(self.workspace / "queries" / stream.name))
        return Message(f"dropped stream {stream.name}")

    def _stop_query(self, statement: StopQuery) -> Message:
        query = self._queries.get(statement.name.lower())
        if query is None:
            known = ", ".join(sorted(query.name for query in self.queries())) or "none"
            raise CatalogError(
                f"there is no query {statement.name}", detail=f"queries: {known}", position=statement.position
            )
        query.stop()
        return Message(f"stopped query {query.name}; its checkpoint is {query.checkpoint}")

    # -- queries ---------------------------------------------------------------------------------------------------

    def _streams(self) -> dict[str, StreamDef]:
        stored = {stream.name.lower(): stream for stream in self.catalog.streams().values()}
        return {**stored, **{name: stream for name, (stream, _) in self._frames.items()}}

    def _stream(self, name: str, statement: Statement) -> StreamDef:
        if name.lower() in self._frames:
            return self._frames[name.lower()][0]
        try:
            return self.catalog.require(name)
        except CatalogError as error:
            error.position = statement.position
            raise

    def _plan(self, query: Query) -> PhysicalPlan:
        return plan(bind(query, self._streams()))

    def _open_sources(self, physical: PhysicalPlan, *, limited: bool) -> dict[str, Source]:
        sources: dict[str, Source] = {}
        for part in physical.inputs:
            stream = part.input.stream
            key = stream.name.lower()
            if key in sources:
                continue
            if key in self._frames:
                sources[key] = registry.frame_source(self._frames[key][1])
            else:
                sources[key] = registry.open_source(self.spark, stream, self.workspace, limited=limited)
        return sources

    def _build(self, physical: PhysicalPlan, sources: Mapping[str, Source]) -> Dataflow:
        partitions = int(str(self.spark.conf.get("spark.sql.shuffle.partitions")))
        settings = parse_settings(physical.query.settings)
        buckets = bucket_numbers(settings.buckets or partitions, partitions)
        resources = Resources(settings.cache_bytes, settings.memory_limit)
        try:
            return build(self.spark, physical, sources, buckets, resources)
        except Exception as error:
            if isinstance(error, WatersmeetError):
                raise
            raise translate(error, "query") from None

    def _frame(self, query: Query) -> DataFrame:
        physical = self._plan(query)
        return self._build(physical, self._open_sources(physical, limited=True)).frame

    def _start(
        self,
        name: str,
        physical: PhysicalPlan,
        query: Query,
        target: StreamDef,
        mode: QueryMode,
        checkpoint: str | None,
        columns: tuple[str, ...] = (),
    ) -> Started:
        running = self._queries.get(name.lower())
        if running is not None and running.is_active:
            raise CatalogError(f"query {name} is running already", hint=f"STOP QUERY {name} first")
        sink = registry.open_sink(target, self.workspace, changelog=physical.weighted, show=self.show)
        settings = parse_settings(query.settings)
        folder = checkpoint and f"{checkpoint.rstrip('/')}/{name}"
        stored = Checkpoint(Storage(self.spark), folder or str(self.workspace / "queries" / name))
        late_log = None
        if settings.late_rows != "drop":
            late_log = self._late_log(settings.late_rows)

        def write(frame: DataFrame, batch_id: int, key: str) -> None:
            sink.write(registry.to_columns(frame, target, columns), batch_id, key)
            if late_log is not None:
                keep_late_rows(self.spark, stored.side, batch_id, late_log, key)

        time = event_time_output(physical.query) if target.derived and target.connector == EMBEDDED else None
        job = Job(
            name=name,
            plan=physical,
            open_sources=lambda limited: self._open_sources(physical, limited=limited),
            write=write,
            checkpoint=stored,
            settings=settings,
            frontier_lag=None if time is None else time[2],
        )
        started = start_query(self.spark, job, mode)
        self._queries[name.lower()] = started
        return Started(started)

    def _query_name(self, wanted: str, source: str) -> str:
        """A name that stays the same when the job runs again, also where it was changed: later ones get a number."""
        name, number = wanted, 1
        while self._sources.setdefault(name, source) != source:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def _late_log(self, name: str) -> EmbeddedLog:
        """The embedded stream for late rows, made where it is not there."""
        check_name(name)
        columns = tuple(StreamColumn(name=column, type="STRING") for column in ("source", "reason", "raw"))
        if self.catalog.get(name) is None:
            self.catalog.add(StreamDef(name=name, columns=columns), if_not_exists=True)
        stream = self.catalog.require(name)
        if stream.connector != EMBEDDED or stream.derived or stream.columns != columns:
            raise ConfigError(
                f"late_rows = '{name}': that stream cannot take late rows",
                hint="name an embedded stream (source STRING, reason STRING, raw STRING), or one that is not there yet",
            )
        return registry.embedded_log(stream, self.workspace)


def _delay_text(stream: StreamDef) -> str:
    if stream.time_unit is TimeUnit.ROWS:
        return f"{stream.delay} rows"
    return f"{stream.delay / 1_000_000:g} seconds"


def _short_hash(text: str) -> str:
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=4).hexdigest()
