"""The session: statements carried out, queries and their results, on the user's Spark."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from watersmeet.bind.define import check_name, define_frame, define_outside, refuse_definitions
from watersmeet.bind.insert_target import check_target
from watersmeet.bind.planning import plan_query
from watersmeet.bind.table_queries import explain_stored
from watersmeet.catalog.streams import EMBEDDED, FRAME, StreamDef, StreamMode
from watersmeet.columns import spark_name
from watersmeet.connectors import console, registry
from watersmeet.connectors.insert import insert_values
from watersmeet.connectors.registry import check_order
from watersmeet.connectors.snapshot import snapshot
from watersmeet.errors import BindError, CatalogError, CheckpointError, ConfigError, UnsupportedError
from watersmeet.lookup.source import RowsSource
from watersmeet.lookup.tables import table_options, table_schema
from watersmeet.plan.explain import explain
from watersmeet.plan.lineage import derived_stream, event_time_output
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.dataflow import Resources, build, new_buckets
from watersmeet.runtime.failures import planning
from watersmeet.runtime.late_rows import keep_late_rows
from watersmeet.runtime.query import Job, QueryMode, RunningQuery, start_query
from watersmeet.runtime.storage import Storage
from watersmeet.session.results import Batch, Message, Plan, Result, Started, Stream, Table
from watersmeet.session.spark import open_spark
from watersmeet.session.streams import Streams, check_connector, check_corrections
from watersmeet.session.table_queries import batch_frame, insert_rows
from watersmeet.settings.query_settings import QuerySettings
from watersmeet.settings.seek import resolve
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import (
    CreateIndex,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    DropIndex,
    Explain,
    Historical,
    InsertHistorical,
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
    """A session on ``spark``, else on the Spark that runs in this process, else on a new local one.

    ``workspace`` is the folder of the catalogue, embedded streams and checkpoints.  ``packages`` are names (``kafka``,
    ``avro``, ``protobuf``) or Maven coordinates that a new Spark loads, ``config`` further settings of it.  A Spark
    that is there gets the RocksDB state store, which the operators need.
    """
    return Session(open_spark(spark, packages, master, config), Path(workspace))


class Session:
    """Carries out statements and keeps the queries that they start."""

    def __init__(self, spark: SparkSession, workspace: Path) -> None:
        self.spark = spark
        self.workspace = workspace.absolute()
        self.show: console.Show = console.show_plainly
        self.streams = Streams(spark, self.workspace)
        self._queries: dict[str, RunningQuery] = {}
        self._query_texts: dict[str, str] = {}

    # -- statements ------------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Result:
        """Carry out one or more statements; the result of the last one comes back.

        Of a SELECT that is a ``Stream``, of one over ``table(…)`` a ``Batch``.
        """
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
        statements = parse(text)
        if len(statements) != 1:
            raise UnsupportedError(f"EXPLAIN takes one query, here are {len(statements)} statements")
        (statement,) = statements
        if isinstance(statement, Explain):
            statement = statement.statement
        if isinstance(statement, Historical | InsertHistorical):
            return self._explained(statement)
        if not isinstance(statement, Select | InsertSelect | CreateStream) or statement.query is None:
            raise UnsupportedError("EXPLAIN takes a query", position=statement.position)
        return self._explained(statement)

    def _explained(self, statement: Select | InsertSelect | CreateStream | Historical | InsertHistorical) -> str:
        if isinstance(statement, Historical | InsertHistorical):
            target = self._target(statement) if isinstance(statement, InsertHistorical) else None
            if target is not None:
                registry.check_sink(target, changelog=False)
            return explain_stored(statement.query, self.streams.by_name(), target)
        assert statement.query is not None
        physical = self._plan(statement.query)
        if isinstance(statement, CreateStream):
            name = statement.name
        elif isinstance(statement, InsertSelect):
            check_corrections(self._target(statement), physical, statement)
            name = self._insert_name(statement, physical)
        else:
            name = f"select_{_short_hash(statement.source)}"
        return explain(physical, self._checkpoint(name, None).read_counters())

    def register(
        self,
        name: str,
        frame: DataFrame,
        *,
        time: str | None = None,
        delay: str | None = "0 seconds",
        unit: str = "ms",
        mode: str = StreamMode.APPEND.value,
        primary_key: Sequence[str] = (),
        order: str | None = None,
    ) -> StreamDef:
        """Make any streaming DataFrame a stream of this session.

        ``time`` is its event-time column (a timestamp, or a whole number of ``unit``: s, ms, us or row), ``delay`` how
        far its rows may come out of order (rows, for the unit row).  Without a time it is the time of arrival.
        ``mode`` and ``primary_key`` are those of CREATE STREAM, for rows that change; with ``delay=None`` none of their
        changes is late, however old, in joins of rows that change.  Rows of one time have the order
        of the column ``order``, a whole number or a timestamp; without one any order, though always the same.

        A batch DataFrame with a time is taken for the versions of a table that are all there: the rows that it has now
        are written below the workspace.  Raises ``BindError`` and ``ConfigError`` for what does not fit.
        """
        if not frame.isStreaming and time is None:
            raise ConfigError(
                f"{name} is not a streaming DataFrame",
                hint="read it with spark.readStream. A batch DataFrame can be a table to join with: as of a time (name"
                " the time of its versions), or to look up in (lookup_join, register_table)",
            )
        columns = [(field.name, field.dataType.simpleString()) for field in frame.schema]
        stream = define_frame(name, columns, time, delay, unit, mode=mode, primary_key=primary_key)
        if order is not None:
            check_order(name, order, frame.schema)
        if not frame.isStreaming:
            frame = snapshot(frame, self.workspace / "tables" / f"{name}-{uuid.uuid4().hex[:8]}")
        self.streams.register(stream, frame, order)
        return stream

    def register_table(self, name: str, table: DataFrame | Mapping[str, str], columns: str | None = None) -> StreamDef:
        """Make an outside table one of this session, for streams to look up in.

        ``table`` has the options of CREATE TABLE … WITH, and ``columns`` says what columns there are, as CREATE TABLE
        does.  Or it is a batch DataFrame: the rows that it has now are collected, and travel with the queries.
        Raises ``BindError`` and ``ConfigError`` for what does not fit.
        """
        if isinstance(table, Mapping):
            if columns is None:
                raise ConfigError(
                    f"{name}: its columns are not given", hint="name those to look up, as in columns='id BIGINT, …'"
                )
            found = define_outside(name, columns, table)
            table_options(found)
            self.streams.register_table(found, None)
            return found
        if table.isStreaming:
            raise ConfigError(
                f"{name} is a streaming DataFrame: only what is there at once can be looked up",
                hint="register it as a stream, and join it FOR SYSTEM_TIME AS OF",
            )
        ddl = ", ".join(f"{spark_name(field.name)} {field.dataType.simpleString()}" for field in table.schema)
        found = define_outside(name, ddl, {"connector": FRAME})
        rows = table.toArrow()
        self.streams.register_table(found, RowsSource(name, rows.cast(table_schema(found, rows.column_names))))
        return found

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
                return self.streams.create(statement)
            case InsertSelect():
                return self._insert(statement, mode, checkpoint)
            case Select() if start_selects:
                name = f"select_{_short_hash(statement.source)}"
                return self._start(name, self._plan(statement.query), _PRINT, mode, checkpoint)
            case Select():
                return Stream(self._frame(statement))
            case Historical():
                return Batch(batch_frame(self.spark, statement.query, self.streams))
            case InsertHistorical():
                return self._insert_stored(statement)
            case Explain():
                return Plan(self._explained(statement.statement))
            case CreateTable():
                return self.streams.create_table(statement)
            case CreateIndex() | DropIndex():
                return self.streams.change_indexes(statement)
            case _:
                return self._manage(statement)

    def _manage(self, statement: InsertValues | Show | ShowCreate | Describe | Drop | StopQuery) -> Message | Table:
        """Statements that look at or change what there is."""
        match statement:
            case InsertValues():
                stream = self.streams.require_target(statement)
                count = insert_values(self.spark, stream, statement, self.workspace)
                return Message(f"{count} row{'s' if count != 1 else ''} into {stream.name}")
            case Show(what="QUERIES"):
                rows: list[tuple[str, ...]] = [
                    (query.name, "running" if query.is_active else "ended", query.checkpoint)
                    for query in self.queries()
                ]
                return Table(("query", "state", "checkpoint"), rows)
            case Show(what="TABLES"):
                return self.streams.show_tables()
            case Show():
                return self.streams.show()
            case ShowCreate():
                return Table(("statement",), [(self.streams.require(statement.name, statement).definition,)])
            case Describe():
                return self.streams.describe(self.streams.require(statement.name, statement))
            case Drop():
                return self._drop(statement)
            case StopQuery():
                return self._stop_query(statement)

    def _create_as(self, statement: CreateStream, query: Query, mode: QueryMode, checkpoint: str | None) -> Result:
        check_name(statement.name, statement.position)
        refuse_definitions(statement)
        physical = self._plan(query)
        stream = self.streams.catalog.get(statement.name)
        if stream is not None:
            if stream.definition == statement.source:
                return self._start(stream.name, physical, stream, mode, checkpoint)
            if statement.if_not_exists:
                return Message(f"stream {stream.name} is there already, with another definition: its query stays")
            raise CatalogError(
                f"there is a stream {statement.name} already, with another definition",
                hint="use another name, or DROP STREAM it first",
                position=statement.position,
            )
        columns = [(field.name, field.dataType.simpleString()) for field in self._build(physical).schema]
        stream = derived_stream(
            statement.name, physical.query, columns, statement.source, options=statement.options or None
        )
        check_connector(stream, statement)
        stale = self._checkpoint(stream.name, checkpoint)
        if stale.read_plan() is not None:
            raise CheckpointError(
                f"the checkpoint {stale.folder} is that of an earlier stream {stream.name}: what it has read would be"
                " missing from this one",
                hint="delete that folder, or use another checkpoint",
                position=statement.position,
            )
        self.streams.catalog.add(stream)
        try:
            return self._start(stream.name, physical, stream, mode, checkpoint)
        except BaseException:
            self.streams.catalog.drop(stream.name)
            raise

    def _insert(self, statement: InsertSelect, mode: QueryMode, checkpoint: str | None) -> Result:
        target = self._target(statement)
        physical = self._plan(statement.query)
        check_target(target, [column.name for column in physical.outputs], statement)
        check_corrections(target, physical, statement)
        name = self._query_name(self._insert_name(statement, physical), statement.source)
        return self._start(name, physical, target, mode, checkpoint, statement.columns)

    def _insert_stored(self, statement: InsertHistorical) -> Message:
        """INSERT INTO … SELECT over what is stored: once, and before this returns."""
        target = self._target(statement)
        sink = registry.open_sink(target, self.workspace, changelog=False, show=self.show)
        frame = batch_frame(self.spark, statement.query, self.streams)
        check_target(target, frame.columns, statement)
        if target.columns:  # by position: Spark's SQL may name two columns alike
            frame = frame.toDF(*(statement.columns or [column.name for column in target.columns]))
        rows = registry.to_columns(frame, target, statement.columns)
        batch = 0  # the only one of a name that is used once
        key = f"into_{target.name}_{_short_hash(statement.source)}-{uuid.uuid4().hex}-{batch:012d}"
        count = insert_rows(rows, lambda counted: sink.write(counted, batch, key))
        return Message(f"{count} row{'s' if count != 1 else ''} into {target.name}")

    def _target(self, statement: InsertSelect | InsertHistorical) -> StreamDef:
        """The stream that takes a query's rows; ``UnsupportedError`` for those that take none."""
        target = self.streams.require_target(statement)
        if target.derived:
            raise UnsupportedError(
                f"{target.name} is fed by its own query (CREATE STREAM … AS)", position=statement.position
            )
        if target.connector == FRAME:
            raise UnsupportedError(
                f"{target.name} is a DataFrame that was registered: nothing can be written to it",
                position=statement.position,
            )
        return target

    def _drop(self, statement: Drop) -> Message:
        using = [query.name for query in self.queries() if query.is_active and query.uses(statement.name)]
        if using:
            raise CatalogError(
                f"{statement.name} is used by a running query: {', '.join(using)}",
                hint=f"STOP QUERY {using[0]} first",
                position=statement.position,
            )
        return self.streams.drop(statement)

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

    def _plan(self, query: Query) -> PhysicalPlan:
        physical = plan_query(query, self.streams.by_name(), self.streams.open_table)
        self.streams.check_seek(physical, query.settings_positions.get("seek_to"))
        return physical

    def _frame(self, select: Select) -> DataFrame:
        """A SELECT as a DataFrame.  Its late and bad rows go to files in the workspace, by query and by run."""
        physical = self._plan(select.query)
        for setting in ("late_rows", "idle_timeout", "trigger"):
            if setting in select.query.settings:
                raise ConfigError(
                    f"{setting} is a setting of queries that Watersmeet runs, but this one is taken as a DataFrame",
                    hint="use INSERT INTO or CREATE STREAM … AS, or set the trigger where the DataFrame is written",
                    position=select.query.settings_positions.get(setting),
                )
        self.streams.check_tables(physical)
        name = f"select_{_short_hash(select.source)}"
        side_folder = str(self.workspace / "side" / f"{name}-{uuid.uuid4().hex[:8]}")
        # only if it is asked for: a restart finds it again, but so does the same SELECT elsewhere in a query
        keeps_log = "skew" in select.query.settings
        return self._build(physical, side_folder, str(self.workspace / "hot_keys") if keeps_log else None)

    def _build(
        self, physical: PhysicalPlan, side_folder: str | None = None, hot_key_folder: str | None = None
    ) -> DataFrame:
        settings = physical.query.settings
        buckets = new_buckets(self.spark, settings.buckets)
        resources = Resources(settings.cache_bytes, settings.memory_limit, side_folder, hot_key_folder)
        with planning("of this statement"):
            sources = self.streams.sources(physical, limited=True, seek=resolve(self.spark, settings.seek_to))
            # the frame may become part of another query, whose metrics must have other names
            label = f"_{uuid.uuid4().hex[:8]}"
            return build(self.spark, physical, sources, buckets, resources, label=label).frame

    def _start(
        self,
        name: str,
        physical: PhysicalPlan,
        target: StreamDef,
        mode: QueryMode,
        checkpoint: str | None,
        columns: tuple[str, ...] = (),
    ) -> Started:
        running = self._queries.get(name.lower())
        if running is not None and running.is_active:
            raise CatalogError(f"query {name} is running already", hint=f"STOP QUERY {name} first")
        self.streams.check_tables(physical)
        stored = self._checkpoint(name, checkpoint)
        time = event_time_output(physical.query) if target.derived and target.connector == EMBEDDED else None
        job = Job(
            name=name,
            plan=physical,
            target=target.name,
            open_sources=lambda limited, seek: self.streams.sources(physical, limited=limited, seek=seek),
            write=self._writer(physical, target, columns, stored),
            checkpoint=stored,
            frontier_lag=None if time is None else time[2],
        )
        started = start_query(self.spark, job, mode)
        self._queries[name.lower()] = started
        return Started(started)

    def _writer(
        self, physical: PhysicalPlan, target: StreamDef, columns: tuple[str, ...], checkpoint: Checkpoint
    ) -> Callable[[DataFrame, int, str], None]:
        """What takes each batch: the sink, and after it the stream for late rows where there is one."""
        settings: QuerySettings = physical.query.settings
        sink = registry.open_sink(target, self.workspace, changelog=physical.weighted, show=self.show)
        late_log = None if settings.late_rows == "drop" else self.streams.late_log(settings.late_rows)

        def write(frame: DataFrame, batch_id: int, key: str) -> None:
            sink.write(registry.to_columns(frame, target, columns), batch_id, key)
            if late_log is not None:
                keep_late_rows(self.spark, checkpoint.side, batch_id, late_log, key)

        return write

    def _checkpoint(self, name: str, folder: str | None) -> Checkpoint:
        """The checkpoint of the query of that name, in the job's folder or in the workspace."""
        path = f"{folder.rstrip('/')}/{name}" if folder else str(self.workspace / "queries" / name)
        return Checkpoint(Storage(self.spark), path)

    def _insert_name(self, statement: InsertSelect, physical: PhysicalPlan) -> str:
        sources = dict.fromkeys(part.input.stream.name for part in physical.inputs)
        target = self.streams.require(statement.stream, statement)
        return f"into_{target.name}_from_{'_'.join(sources)}"

    def _query_name(self, wanted: str, source: str) -> str:
        """A name that stays the same when the job runs again, also where it was changed: later ones get a number."""
        name, number = wanted, 1
        while self._query_texts.setdefault(name, source) != source:
            number += 1
            name = f"{wanted}_{number}"
        return name


def _short_hash(text: str) -> str:
    return hashlib.blake2b(" ".join(text.split()).encode(), digest_size=4).hexdigest()
