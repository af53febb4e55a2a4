"""The session: executes statements on the user's Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from watersmeet.bind.define import check_name, define_frame, define_outside, refuse_definitions
from watersmeet.bind.insert_target import check_target
from watersmeet.catalog.streams import FRAME, StreamDef, StreamMode
from watersmeet.catalog.workspace import make_workspace
from watersmeet.columns import spark_name
from watersmeet.connectors import console, registry
from watersmeet.connectors.dataframe_source import check_order
from watersmeet.connectors.insert import insert_values
from watersmeet.connectors.snapshot import snapshot
from watersmeet.connectors.stream_schema import to_columns
from watersmeet.errors import BindError, CatalogError, CheckpointError, ConfigError, UnsupportedError
from watersmeet.lookup.source import RowsSource
from watersmeet.lookup.tables import table_options, table_schema
from watersmeet.monitoring.access import parse_address
from watersmeet.monitoring.otel import MetricsExport
from watersmeet.monitoring.server import LivePage
from watersmeet.runtime.failures import naming_lost_jvm
from watersmeet.runtime.inspection.selecting import select_state
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.replace.switch import Replacement
from watersmeet.runtime.rescale.switch import Rescaled
from watersmeet.runtime.status import QueryStatus
from watersmeet.runtime.store_folder import Place, place_of
from watersmeet.session.frames import derived, select_frame
from watersmeet.session.job_changes import JobChange
from watersmeet.session.listings import description
from watersmeet.session.modes import in_mode
from watersmeet.session.queries import Queries
from watersmeet.session.replacing import JobReplaced
from watersmeet.session.rescaling import QueryStatement
from watersmeet.session.results import Batch, Message, Result, Started, Stream, Table
from watersmeet.session.spark import open_spark
from watersmeet.session.statement_plans import StatementPlans
from watersmeet.session.streams import Streams, check_connector
from watersmeet.session.table_queries import batch_frame, insert_rows
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.settings.secrets import masked_definition
from watersmeet.sql.parse import parse
from watersmeet.sql.query_names import text_hash
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
    SelectState,
    Show,
    ShowCreate,
    Statement,
    StatementSet,
    StopQuery,
)


def connect(
    spark: SparkSession | None = None,
    workspace: str | Path = ".watersmeet",
    *,
    packages: Iterable[str] = (),
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Session:
    """Open a session on ``spark``, else on the Spark that runs in this process, else on a new local one.

    ``workspace`` is the folder of the catalogue, embedded streams and checkpoints, which is made readable for its owner
    only, or a URI that Spark reaches (``s3a://…``).  ``packages`` are names (``kafka``, ``avro``, ``protobuf``) or
    Maven coordinates that a new Spark loads, and ``config`` holds further settings for it.  A new local Spark tries
    each task four times, unless ``master`` names another number (``local[2, 1]``).  A running Spark gets the RocksDB
    state store, which the operators need.

    Raises ``ConfigError`` for settings that do not fit and for a Spark Connect session, ``ConnectorError`` if a package
    cannot be downloaded, and ``WatersmeetError`` if Spark does not start.
    """
    opened = open_spark(spark, packages, master, config)
    return Session(opened, place_of(opened, workspace))


class Session:
    """Executes statements, and keeps the queries that they start. ``watersmeet.connect`` opens one."""

    def __init__(self, spark: SparkSession, workspace: Place) -> None:
        self.spark = spark
        """The Spark session on which queries run."""
        self.place = workspace
        """The folder of the workspace, or its URI on a store."""
        if isinstance(workspace, Path) and workspace.is_dir():
            make_workspace(workspace)  # an earlier version may have made it readable for others
        self.show: console.Show = console.show_plainly
        """Prints the rows of ``print`` and of a bare SELECT: columns, (delta, row) pairs and the batch's number."""
        self.streams = Streams(spark, self.place)
        """The streams and tables that this session knows."""
        self._queries = Queries(spark, self.place, self.streams)
        self._plans = StatementPlans(self.streams, self._queries)
        self._shown: list[LivePage | MetricsExport] = []

    @property
    def workspace(self) -> Path:
        """The folder of the workspace; ``ConfigError`` for one on a store, whose URI is that of ``place``."""
        if isinstance(self.place, Path):
            return self.place
        raise ConfigError(f"the workspace {self.place} is no folder of this machine", hint="take str(session.place)")

    # -- statements ------------------------------------------------------------------------------------------------

    def sql(self, text: str, *, mode: str | None = None) -> Result:
        """Execute one or more statements, and return the result of the last one.

        The result of a SELECT is a ``Stream``, of a SELECT over ``table(…)`` a ``Batch``.  ``mode`` (``real_time`` or
        ``micro_batch``) is that of queries whose SETTINGS name none.
        """
        result: Result | None = None
        for statement in in_mode(parse(text), mode):
            result = self._execute(statement, QueryMode.CONTINUOUS, None, start_selects=False)
        if result is None:
            raise BindError("the text contains no statement")
        return result

    def run(
        self,
        text: str,
        mode: QueryMode = QueryMode.CONTINUOUS,
        checkpoint: str | None = None,
        *,
        real_time: bool = False,
    ) -> Iterator[Result]:
        """Execute the statements of a job one by one; a bare SELECT is started as a query that prints its rows.

        ``checkpoint`` is the folder of the job's checkpoints (None: the workspace).  With ``real_time``, queries whose
        SETTINGS name no mode run in real time.
        """
        for statement in in_mode(parse(text), REAL_TIME if real_time else None):
            yield self._execute(statement, mode, checkpoint, start_selects=True)

    def explain(self, text: str) -> str:
        """Explain how a query would run: its windows, keys, state, and where each condition is evaluated."""
        statements = parse(text)
        if len(statements) != 1:
            raise UnsupportedError(f"EXPLAIN takes one query, but the text contains {len(statements)} statements")
        (statement,) = statements
        if isinstance(statement, Explain):
            statement = statement.statement
        if isinstance(statement, Historical | InsertHistorical | StatementSet):
            return self._plans.explained(statement).text
        if not isinstance(statement, Select | InsertSelect | CreateStream) or statement.query is None:
            raise UnsupportedError("EXPLAIN takes a query", position=statement.position)
        return self._plans.explained(statement).text

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
        ordered_by: str | None = None,
    ) -> StreamDef:
        """Register a streaming DataFrame as a stream of this session.

        ``time`` is its event-time column: a timestamp, or a whole number of ``unit`` (s, ms, us or row).  Without one,
        event time is the time of arrival.  ``delay`` is how far rows may come out of order (for the unit row: a number
        of rows).  ``mode`` and ``primary_key`` are those of CREATE STREAM, for changing streams; with ``delay=None`` no
        change is late, however old, in joins of changing streams.  ``order`` is a column, a whole number or a
        timestamp, that orders rows of equal time; without one, their order is arbitrary but fixed.  ``ordered_by`` says
        in which order rows arrive, as in CREATE STREAM.

        A batch DataFrame with a time is registered as the complete versions of a table: its current rows are written
        below the workspace.  Raises ``BindError`` and ``ConfigError`` for arguments that do not fit.
        """
        if not frame.isStreaming and time is None:
            raise ConfigError(
                f"{name} is not a streaming DataFrame",
                hint="read it with spark.readStream. A batch DataFrame can be a table to join with: as of a time (name"
                " the time of its versions), or by lookup (lookup_join, register_table)",
            )
        columns = [(field.name, field.dataType.simpleString()) for field in frame.schema]
        stream = define_frame(
            name, columns, time, delay, unit, mode=mode, primary_key=primary_key, ordered_by=ordered_by
        )
        if order is not None:
            check_order(name, order, frame.schema)
        if not frame.isStreaming:
            if isinstance(self.place, Path):
                make_workspace(self.place)
            frame = snapshot(frame, self.place / "tables" / f"{name}-{uuid.uuid4().hex[:8]}")
        self.streams.register(stream, frame, order)
        return stream

    def register_table(self, name: str, table: DataFrame | Mapping[str, str], columns: str | None = None) -> StreamDef:
        """Register an external table that lookup joins of this session query.

        ``table`` holds the options of CREATE TABLE … WITH, and ``columns`` the columns as CREATE TABLE declares them.
        Or ``table`` is a batch DataFrame: its current rows are collected, and travel with the queries.
        Raises ``BindError`` and ``ConfigError`` for arguments that do not fit.
        """
        if isinstance(table, Mapping):
            if columns is None:
                raise ConfigError(
                    f"{name}: its columns are missing", hint="declare those to look up, as in columns='id BIGINT, …'"
                )
            found = define_outside(name, columns, table)
            table_options(found)
            self.streams.register_table(found, None)
            return found
        if table.isStreaming:
            raise ConfigError(
                f"{name} is a streaming DataFrame, but a lookup needs a complete table",
                hint="register it as a stream, and join it FOR SYSTEM_TIME AS OF",
            )
        ddl = ", ".join(f"{spark_name(field.name)} {field.dataType.simpleString()}" for field in table.schema)
        found = define_outside(name, ddl, {"connector": FRAME})
        rows = table.toArrow()
        self.streams.register_table(found, RowsSource(name, rows.cast(table_schema(found, rows.column_names))))
        return found

    def queries(self) -> list[RunningQuery]:
        """The queries that this session has started."""
        return self._queries.all()

    def ui(self, address: str | None = None) -> LivePage:
        """Open a live page of this session's queries, at ``url``, until the session or the page is stopped.

        ``address`` is HOST:PORT; by default only this machine can read the page.  Raises ``ConfigError`` if the page
        cannot listen there, or if its packages (``watersmeet[ui]``) are missing.
        """
        page = LivePage(self._statuses, parse_address(address))
        self._shown.append(page)
        return page

    def otel(self) -> MetricsExport:
        """Send the metrics of this session's queries by OpenTelemetry's protocol, until the session or it is stopped.

        The environment says where to (``OTEL_EXPORTER_OTLP_ENDPOINT``).  Raises ``ConfigError`` if its variables make
        no sense, or if the packages (``watersmeet[otel]``) are missing.
        """
        export = MetricsExport(self._statuses)
        self._shown.append(export)
        return export

    def _statuses(self) -> list[QueryStatus]:
        return [query.status() for query in self.queries()]

    def rescale(
        self,
        text: str,
        buckets: int,
        *,
        query: str | None = None,
        checkpoint: str | None = None,
        dry_run: bool = False,
        real_time: bool = False,
    ) -> list[Rescaled]:
        """Give the stopped queries of a job, or the one of this name, another number of buckets; no state is lost.

        The job is the text that they were started with; of its statements, only definitions are carried out.
        ``checkpoint`` and ``real_time`` are those of ``run``.  With ``dry_run`` nothing changes.  Raises
        ``CheckpointError`` for a query without a checkpoint or state, or that runs.
        """
        change = JobChange(self._plans, checkpoint, query, real_time=real_time, show=self.show)
        define = partial(self._execute, mode=QueryMode.CONTINUOUS, checkpoint=checkpoint, start_selects=False)
        return change.rescale(text, buckets, define, dry_run=dry_run)

    def replace(
        self,
        text: str,
        *,
        query: str | None = None,
        checkpoint: str | None = None,
        start: str | None = None,
        accept_counts: bool = False,
        dry_run: bool = False,
        real_time: bool = False,
    ) -> JobReplaced:
        """Let the stopped queries of a job, or the one of this name, go on as the queries of this text.

        What can go on with its state does; else a new version begins at its ``start`` (``stored``, ``beginning`` or a
        time), which with ``query`` asks for one where state could go on too.  ``accept_counts`` takes a version that
        has read other numbers of rows too.  ``checkpoint`` and ``real_time`` are those of ``run``.  With ``dry_run``
        nothing changes.

        Raises ``CheckpointError`` for a query without a checkpoint, or that runs, or that needs a new version without a
        ``start``.
        """
        change = JobChange(self._plans, checkpoint, query, real_time=real_time, show=self.show)
        return change.replace(text, Replacement(start, query is not None, accept_counts, dry_run))

    def stop(self) -> None:
        """Stop all queries of this session, and what shows them; Spark continues to run."""
        for query in self.queries():
            query.stop()
        while self._shown:
            self._shown.pop().stop()

    # -- one statement ---------------------------------------------------------------------------------------------

    @naming_lost_jvm()
    def _execute(self, statement: Statement, mode: QueryMode, checkpoint: str | None, *, start_selects: bool) -> Result:
        match statement:
            case CreateStream(query=Query() as query):
                return self._create_as(statement, query, mode, checkpoint)
            case CreateStream():
                return self.streams.create(statement)
            case InsertSelect() | StatementSet():
                return self._start(statement, mode, checkpoint)
            case Select() if start_selects:
                return self._start(statement, mode, checkpoint)
            case Select():
                return Stream(select_frame(self._plans, self.place, statement))
            case Historical():
                return Batch(batch_frame(self.spark, statement.query, self.streams))
            case InsertHistorical():
                return self._insert_stored(statement)
            case SelectState():
                return select_state(statement.query, checkpoint or f"{self.place}/queries")
            case Explain():
                return self._plans.explained(statement.statement)
            case CreateTable():
                return self.streams.create_table(statement)
            case CreateIndex() | DropIndex():
                return self.streams.change_indexes(statement)
            case _:
                return self._manage(statement)

    def _manage(self, statement: InsertValues | Show | ShowCreate | Describe | Drop | StopQuery) -> Message | Table:
        """Execute a statement that reads or changes definitions, rows or queries, and starts no query."""
        match statement:
            case InsertValues():
                stream = self.streams.require_target(statement)
                count = insert_values(self.spark, stream, statement, self.place)
                return Message(f"{count} row{'s' if count != 1 else ''} into {stream.name}")
            case Show(what="QUERIES"):
                return self._queries.table()
            case Show(what="TABLES"):
                return self.streams.show_tables()
            case Show():
                return self.streams.show()
            case ShowCreate():
                stream = self.streams.require(statement.name, statement)
                return Table(("statement",), [(masked_definition(stream.definition, stream.options),)])
            case Describe():
                return description(self.streams.require(statement.name, statement))
            case Drop():
                return self._drop(statement)
            case StopQuery():
                query = self._queries.stop(statement)
                return Message(f"stopped query {query.name}; its checkpoint is {query.checkpoint}")

    def _create_as(self, statement: CreateStream, query: Query, mode: QueryMode, checkpoint: str | None) -> Result:
        check_name(statement.name, statement.position)
        refuse_definitions(statement)
        physical = self._plans.plan(query)
        stream = self.streams.catalog.get(statement.name)
        if stream is not None:
            if stream.definition == statement.source:
                return self._start(statement, mode, checkpoint)
            if statement.if_not_exists:
                return Message(f"stream {stream.name} exists already with another definition, and its query stays")
            raise CatalogError(
                f"there is a stream {statement.name} already, with another definition",
                hint="use another name, or DROP STREAM it first",
                position=statement.position,
            )
        stream = derived(self.streams, statement, physical)
        check_connector(stream, statement)
        stale = self._queries.checkpoint(stream.name, checkpoint)
        if stale.read_plan() is not None:
            raise CheckpointError(
                f"the checkpoint {stale.folder} belongs to an earlier stream {stream.name}: rows that it has read would"
                " be missing from this one",
                hint="delete that folder, or use another checkpoint",
                position=statement.position,
            )
        self.streams.catalog.add(stream)
        try:
            return self._start(statement, mode, checkpoint)
        except BaseException:
            self.streams.catalog.drop(stream.name)
            raise

    def _insert_stored(self, statement: InsertHistorical) -> Message:
        """INSERT INTO … SELECT over stored rows, which is done when this returns."""
        target = self._plans.target(statement)
        sink = registry.open_sink(target, self.place, changelog=False, show=self.show)
        frame = batch_frame(self.spark, statement.query, self.streams)
        check_target(target, frame.columns, statement)
        if target.columns:  # by position: two columns of Spark SQL may have one name
            frame = frame.toDF(*(statement.columns or [column.name for column in target.columns]))
        rows = to_columns(frame, target, statement.columns)
        batch = 0  # the only one: the key is used once
        key = f"into_{target.name}_{text_hash(statement.source)}-{uuid.uuid4().hex}-{batch:012d}"
        count = insert_rows(rows, lambda counted: sink.write(counted, batch, key))
        return Message(f"{count} row{'s' if count != 1 else ''} into {target.name}")

    def _drop(self, statement: Drop) -> Message:
        using = self._queries.using(statement.name)
        if using:
            raise CatalogError(
                f"{statement.name} is used by a running query: {', '.join(using)}",
                hint=f"STOP QUERY {using[0]} first",
                position=statement.position,
            )
        return self.streams.drop(statement)

    def _start(self, statement: QueryStatement, mode: QueryMode, checkpoint: str | None) -> Started:
        with self._queries.names_if_started():
            name, plan, targets = self._plans.named(statement)
            return Started(self._queries.start(name, plan, targets, mode, checkpoint, self.show, statement.source))
