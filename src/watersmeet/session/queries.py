"""The queries of a session: their names, their checkpoints, and those that run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.catalog.workspace import make_workspace
from watersmeet.connectors import console, registry
from watersmeet.connectors.stream_schema import to_columns
from watersmeet.engine.evicted_rows import EVICTED
from watersmeet.engine.late_rows import LATE
from watersmeet.errors import CatalogError, CheckpointError
from watersmeet.plan.lineage import event_time_output
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.job import Job, Output
from watersmeet.runtime.outages import Outages
from watersmeet.runtime.query import RunningQuery, start_query
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.real_time.checks import check_real_time
from watersmeet.runtime.replace.before import Version, version_of
from watersmeet.runtime.replace.switch import Replaced, Replacement, replace_query
from watersmeet.runtime.rescale.switch import Rescaled, rescale_query
from watersmeet.runtime.said import Said, plain
from watersmeet.runtime.side_row_streams import keep_side_rows
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.store_folder import Place
from watersmeet.session.listings import query_list
from watersmeet.session.results import Table
from watersmeet.session.streams import Streams
from watersmeet.settings.seek import Starts
from watersmeet.sql.query_names import NumberedNames, insert_name, set_name
from watersmeet.sql.statements import StopQuery


@dataclass(frozen=True, slots=True)
class QueryTarget:
    """The name of a query, the stream that it feeds, and which of its ``columns`` (empty: all)."""

    query: str
    target: StreamDef
    columns: tuple[str, ...] = ()


class Queries:
    """Starts queries, and keeps them by name."""

    def __init__(self, spark: SparkSession, workspace: Place, streams: Streams) -> None:
        self._spark = spark
        self._workspace = workspace
        self._streams = streams
        self._started: dict[str, RunningQuery] = {}
        self._names = NumberedNames()

    def all(self) -> list[RunningQuery]:
        """The queries that have been started, in that order."""
        return list(self._started.values())

    def using(self, stream: str) -> list[str]:
        """The names of running queries that read or feed a stream."""
        return [query.name for query in self.all() if query.is_active and query.uses(stream)]

    def table(self) -> Table:
        """SHOW QUERIES."""
        return query_list(self.all())

    def start(
        self,
        name: str,
        plan: PhysicalPlan,
        targets: Sequence[QueryTarget],
        mode: QueryMode,
        checkpoint: str | None,
        show: console.Show,
        text: str,
    ) -> RunningQuery:
        """Start a plan, with a target for each of its queries.

        ``checkpoint`` is the folder of the job's checkpoints (None: the workspace), ``text`` the statement.  Raises
        ``CatalogError`` if a query of that name is running, and what keeps the query from starting.
        """
        self._refuse_running(name)
        self._streams.check_tables(plan)
        if plan.query.settings.is_real_time:
            for query, to in zip(plan.queries, targets, strict=True):
                check_real_time(query, to.target, to.columns, is_continuous=mode is QueryMode.CONTINUOUS)
        if checkpoint is None and isinstance(self._workspace, Path):
            make_workspace(self._workspace)
        started = start_query(self._spark, self._job(name, plan, targets, checkpoint, show, text), mode)
        self._started[name.lower()] = started
        return started

    def rescale(
        self,
        name: str,
        plan: PhysicalPlan,
        targets: Sequence[QueryTarget],
        checkpoint: str | None,
        show: console.Show,
        buckets: int,
        *,
        dry_run: bool,
    ) -> Rescaled:
        """Give a stopped query another number of buckets; ``CatalogError`` if it runs in this session."""
        self._refuse_running(name)
        job = self._job(name, plan, targets, checkpoint, show)
        return rescale_query(self._spark, job, buckets, dry_run=dry_run)

    def replace(
        self,
        name: str,
        plan: PhysicalPlan,
        targets: Sequence[QueryTarget],
        checkpoint: str | None,
        show: console.Show,
        text: str,
        old: Callable[[Said], PhysicalPlan | None],
        wanted: Replacement,
    ) -> Replaced:
        """Let a stopped query go on as another one; ``old`` plans it as it was, None where that is not possible."""
        self._refuse_running(name)
        job = self._job(name, plan, targets, checkpoint, show, text)
        if (stored := job.checkpoint.read_plan()) is None:
            raise CheckpointError(
                f"{name} has no checkpoint {job.checkpoint.folder}: there is nothing to replace",
                detail=f"checkpoints beside it: {', '.join(self._beside(job.checkpoint)) or 'none'}",
                hint="start it with watersmeet run; where it only feeds another sink, copy the checkpoint of the query"
                " before it to that folder first (watersmeet checkpoint copy)",
            )

        def before() -> tuple[Version, ...]:
            said = job.checkpoint.read_said(stored)
            planned = None if said is None else old(said)
            if planned is None:
                return ()
            starts = None if planned.query.settings.is_real_time else Starts(stored.starts, has_read=True)
            sources = self._streams.sources(
                planned, limited=False, seek=stored.seek, starts=starts, pieces=job.checkpoint.pieces
            )
            return (version_of(self._spark, planned, sources, stored),)

        return replace_query(self._spark, job, before, wanted)

    def _beside(self, checkpoint: Checkpoint) -> list[str]:
        folder = checkpoint.folder.rpartition("/")[0]
        storage = Storage(self._spark)
        return [each for each in storage.names(folder) if storage.exists(f"{folder}/{each}/plan.json")]

    @contextmanager
    def named_anew(self, *, kept: bool) -> Iterator[None]:
        """Name queries as a new session does: a changed text takes the name of the one before.

        If this fails, and unless it is ``kept``, the names of before count again.
        """
        before, self._names = self._names, NumberedNames()
        try:
            yield
        except BaseException:
            self._names = before
            raise
        if not kept:
            self._names = before

    @contextmanager
    def names_if_started(self) -> Iterator[None]:
        """Names that are given meanwhile count only if this succeeds: a text that is refused has no query."""
        before = self._names.copy()
        try:
            yield
        except BaseException:
            self._names = before
            raise

    def said_in(self, folder: str | None) -> Iterator[tuple[str, Said]]:
        """What the queries of a folder of checkpoints, or of the workspace, said when they last ran, by name."""
        for name in self._beside(self.checkpoint("_", folder)):
            stored = self.checkpoint(name, folder)
            if (plan := stored.read_plan()) is not None and (said := stored.read_said(plan)) is not None:
                yield name, said

    def _refuse_running(self, name: str) -> None:
        running = self._started.get(name.lower())
        if running is not None and running.is_active:
            raise CatalogError(f"query {name} is running already", hint=f"STOP QUERY {name} first")

    def _job(
        self,
        name: str,
        plan: PhysicalPlan,
        targets: Sequence[QueryTarget],
        checkpoint: str | None,
        show: console.Show,
        text: str | None = None,
    ) -> Job:
        first = targets[0]
        stored = self.checkpoint(name, checkpoint)
        stores_frontier = first.target.derived and first.target.connector == EMBEDDED
        time = event_time_output(plan.query) if stores_frontier else None
        outages = Outages(name, plan.query.settings)
        return Job(
            name=name,
            plan=plan,
            open_sources=lambda spark, limited, seek, starts: self._streams.sources(
                plan,
                limited=limited,
                seek=seek,
                starts=starts,
                live=spark if plan.query.settings.is_real_time else None,
                pieces=stored.pieces,
            ),
            limits_batches=self._streams.limit_batches(plan),
            outputs=tuple(self._output(*each, show, outages) for each in zip(plan.queries, targets, strict=True)),
            live_sinks=lambda: [
                registry.open_live_sink(to.target, self._workspace, query, to.columns, show)
                for query, to in zip(plan.queries, targets, strict=True)
            ],
            keep_side_rows=self._keeper_of_side_rows(plan, stored),
            checkpoint=stored,
            outages=outages,
            frontier_lag=None if time is None else time[2],
            said=None if text is None else _said(plan, targets, text),
        )

    def stop(self, statement: StopQuery) -> RunningQuery:
        """STOP QUERY; ``CatalogError`` if there is no query of that name."""
        query = self._started.get(statement.name.lower())
        if query is None:
            known = ", ".join(sorted(query.name for query in self.all())) or "none"
            raise CatalogError(
                f"there is no query {statement.name}", detail=f"queries: {known}", position=statement.position
            )
        query.stop()
        return query

    def checkpoint(self, name: str, folder: str | None) -> Checkpoint:
        """The checkpoint of the query of that name, in the job's folder or in the workspace."""
        path = f"{folder.rstrip('/')}/{name}" if folder else str(self._workspace / "queries" / name)
        storage = Storage(self._spark)
        # workers do not know Spark's default file system
        return Checkpoint(storage, path if storage.local_path(path) is not None else storage.uri(path))

    def insert_name(self, target: StreamDef, plan: PhysicalPlan, source: str) -> str:
        """The name of an INSERT INTO … SELECT, which it keeps when the job runs again; other texts get a number."""
        return self._names.name_for(name_of_insert(target, plan), source)

    def set_name(self, names: Sequence[str], source: str) -> str:
        """The name of queries that run as one, by their own names, kept and numbered as that of an INSERT."""
        return self._names.name_for(set_name(names), source)

    def _output(self, plan: PhysicalPlan, target: QueryTarget, show: console.Show, outages: Outages) -> Output:
        """Where a query's results go, and what writes each batch."""
        stream = target.target
        sink = registry.open_sink(stream, self._workspace, changelog=plan.weighted, show=show, tried=outages.tried)

        def write(frame: DataFrame, batch_id: int, key: str) -> object:
            return sink.write(to_columns(frame, stream, target.columns), batch_id, key)

        reach = partial(registry.reach_sink, self._spark, stream)
        return Output(target.query, stream.name, write, reach, is_keyed=bool(stream.primary_key))

    def _keeper_of_side_rows(self, plan: PhysicalPlan, checkpoint: Checkpoint) -> Callable[[int, str], None]:
        """What keeps the late and evicted rows of a batch, if the query wants it."""
        settings = plan.query.settings
        streams = {LATE: ("late_rows", settings.late_rows), EVICTED: ("evicted_rows", settings.evicted_rows)}
        logs = {
            kind: self._streams.side_log(name, setting) for kind, (setting, name) in streams.items() if name != "drop"
        }
        if not logs:
            return lambda batch_id, key: None
        return lambda batch_id, key: keep_side_rows(self._spark, checkpoint.side, batch_id, logs, key)


def _said(plan: PhysicalPlan, targets: Sequence[QueryTarget], text: str) -> Said:
    read = {part.input.stream.name.lower(): plain(part.input.stream) for part in plan.streams}
    fed = tuple(target.target.name for target in targets)
    return Said(text=text, mode=plan.query.settings.mode, streams=read, targets=fed)


def name_of_insert(target: StreamDef, plan: PhysicalPlan) -> str:
    """The name of a query that feeds ``target`` by INSERT INTO … SELECT, before a number tells it from others."""
    return insert_name(target.name, (part.input.stream.name for part in plan.streams))
