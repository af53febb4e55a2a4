"""A running query: its Spark streaming query, the runs that a mode consists of, and what it reports."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.events import Event, EventKind
from watersmeet.errors import CheckpointError, WatersmeetError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.dataflow import Resources, Source, build, new_buckets, workers_are_here
from watersmeet.runtime.failures import planning, translate
from watersmeet.runtime.idle import IdleWatch
from watersmeet.runtime.metrics import ProgressReader, counters_of, kernel_counters, rows_out
from watersmeet.settings.secrets import hide
from watersmeet.settings.seek import Seek, resolve

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2


class QueryMode(Enum):
    """How long a query runs."""

    CONTINUOUS = "continuous"  # until it is stopped
    BOUNDED = "bounded"  # reads what is there, treats it as all there is, flushes and ends
    DRAIN = "drain"  # processes what is there and stays resumable


@dataclass(frozen=True, slots=True)
class Report:
    """Counts since the query began (over restarts), and how large its state is; by input alias where a dictionary.

    ``batches`` and ``rows_out`` count this run alone.  ``counters`` has what else operators count (``join_1.NAME``).
    """

    batches: int = 0
    rows_in: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    last_batch_ms: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """All that starting a query takes.

    ``open_sources`` is told whether batches are limited, and where streams begin.  ``target`` is the stream that it
    feeds; ``write`` gets each batch's rows, its number and a key that names both.
    ``frontier_lag`` is given where the target stores the query's frontier.
    """

    name: str
    plan: PhysicalPlan
    target: str
    open_sources: Callable[[bool, Seek | None], Mapping[str, Source]]
    write: Callable[[DataFrame, int, str], None]
    checkpoint: Checkpoint
    frontier_lag: int | None = None


class RunningQuery:
    """A query that has been started; ``wait`` for it or ``stop`` it."""

    def __init__(self, spark: SparkSession, job: Job, mode: QueryMode) -> None:
        self._spark = spark
        self._job = job
        self._mode = mode
        self._query: StreamingQuery | None = None
        self._folder: str | None = None
        self._error: WatersmeetError | None = None
        self._write_error: Exception | None = None
        self._stopping = threading.Event()
        self._counters = job.checkpoint.read_counters()
        self._seen_batches = 0
        self._rows_out = 0
        self._batch_ms = 0
        self._progress = ProgressReader()
        self._has_ended = self._begin()
        self._thread = threading.Thread(target=self._supervise, name=f"watersmeet-{job.name}", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The query's name, unique in its session."""
        return self._job.name

    @property
    def checkpoint(self) -> str:
        """The folder of its checkpoint."""
        return self._job.checkpoint.folder

    def uses(self, stream: str) -> bool:
        """Whether it reads or feeds that stream."""
        plan = self._job.plan
        read = [input.stream.name for input in (*(part.input for part in plan.inputs), *plan.tables)]
        return stream.lower() in (name.lower() for name in (self._job.target, *read))

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ends (True) or the time, in seconds, is over (False); raises its error where it failed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            # short waits, so that an interrupt reaches the main thread
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._thread.join(_POLL_SECONDS if left is None else min(_POLL_SECONDS, left))
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Stop, abandoning the batch that is being computed; the checkpoint is kept."""
        self._stopping.set()
        if self._query is not None:
            try:
                self._query.stop()
            except (PySparkException, Py4JError, ConnectionError) as error:
                _log.debug("while stopping %s: %s", self.name, error)
        self._thread.join()

    def report(self) -> Report:
        """What it has done so far."""
        by_counter: dict[str, dict[str, int]] = {}
        totals: dict[str, int] = {}
        for name, value in self._counters.items():
            _, counter, *source = name.split(".", 2)
            if source:
                by_counter.setdefault(counter, {})[source[0]] = value
            else:
                totals[counter] = totals.get(counter, 0) + value
        return Report(
            batches=self._seen_batches,
            rows_in=by_counter.get("in", {}),
            used=by_counter.get("used", {}),
            filtered=by_counter.get("filtered", {}),
            late=by_counter.get("late", {}),
            quarantined=by_counter.get("quarantined", {}),
            rows_out=self._rows_out,
            state_rows=totals.get("state_rows", 0),
            state_bytes=totals.get("state_bytes", 0),
            last_batch_ms=self._batch_ms,
            counters=kernel_counters(self._counters),
        )

    # -- the runs of a mode ----------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Check the checkpoint and start a run; True where it takes up an end of input that was not finished."""
        checkpoint = self._job.checkpoint
        stored = checkpoint.read_plan()
        checkpoint.refuse_sealed(stored)
        checkpoint.prepare()
        if checkpoint.has_ended():
            if self._mode is not QueryMode.BOUNDED:
                raise CheckpointError(
                    f"a bounded run on {checkpoint.folder} has declared the end of its input and not come to an end",
                    hint="run it with --bounded once more",
                )
            self._start(limited=False, available_now=True)
            return True
        self._start(limited=True, available_now=self._mode is not QueryMode.CONTINUOUS)
        return False

    def _start(self, *, limited: bool, available_now: bool) -> None:
        """Start one Spark query on the checkpoint."""
        job, spark, settings = self._job, self._spark, self._job.plan.query.settings
        stored = job.checkpoint.read_plan()
        buckets = stored.buckets if stored is not None else new_buckets(spark, settings.buckets)
        seek = stored.seek if stored is not None else resolve(spark, settings.seek_to)
        control = spark.readStream.text(job.checkpoint.control)
        resources = Resources(
            cache_bytes=settings.cache_bytes,
            memory_limit=settings.memory_limit,
            side_folder=job.checkpoint.side,
            # on a cluster workers may not reach every place that Spark does
            hot_key_folder=job.checkpoint.hot_keys if workers_are_here(spark) or settings.skew is not None else None,
        )
        with planning(job.name):
            sources = job.open_sources(limited, seek)
            dataflow = build(spark, job.plan, sources, buckets, resources, control, job.frontier_lag)
            self._folder = dataflow.folder
            self._checkpoint_id = job.checkpoint.accept(stored, buckets, dataflow.operators, seek).id[:8]
            writer = (
                dataflow.frame.writeStream.queryName(f"{job.name}")
                .option("checkpointLocation", job.checkpoint.spark)
                .foreachBatch(self._write)
            )
            if available_now:
                writer = writer.trigger(availableNow=True)
            elif settings.trigger:
                writer = writer.trigger(processingTime=f"{int(settings.trigger * 1000)} milliseconds")
            self._query = writer.start()

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._job.write(frame, batch_id, f"{self.name}-{self._checkpoint_id}-{batch_id:012d}")
        except Exception as error:
            # through Spark it would come back as text
            self._write_error = error
            raise

    def _supervise(self) -> None:
        try:
            self._watch()
            if self._mode is QueryMode.BOUNDED and not self._stopping.is_set():
                if not self._has_ended:
                    self._job.checkpoint.write_event(Event(EventKind.END))
                    self._has_ended = True
                    self._start(limited=False, available_now=True)
                    if self._stopping.is_set() and self._query is not None:
                        self._query.stop()
                    self._watch()
                if not self._stopping.is_set():
                    self._job.checkpoint.seal()
        except WatersmeetError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - whatever ends a query must not pass for its success
            if not self._stopping.is_set():
                self._error = self._explain(error)
        finally:
            self._keep_counters()

    def _keep_counters(self) -> None:
        """A later run that finds nothing to do still tells of what was done before."""
        try:
            self._job.checkpoint.write_counters(self._counters)
        except Exception as error:  # noqa: BLE001 - they are for people only, and Spark may be gone
            _log.debug("counters of %s could not be written: %s", self.name, error)

    def _explain(self, error: Exception) -> WatersmeetError:
        """The failure as one of our errors; Spark's whole text goes to a file beside the checkpoint."""
        cause = self._write_error or error
        if isinstance(cause, WatersmeetError):
            return cause
        try:
            self._job.checkpoint.write_failure(hide(str(error)))
        except Exception as second:  # noqa: BLE001 - the first failure is the one to tell
            _log.debug("failure.log could not be written: %s", second)
        return translate(cause, self.name)

    def _watch(self) -> None:
        """Follow the Spark query until it ends; tell it of idle inputs meanwhile."""
        assert self._query is not None
        idle = IdleWatch(None if self._has_ended else self._job.plan.query.settings.idle_timeout)
        try:
            while not self._query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
                self._take_progress(self._query)
                for event in idle.events(self._counters):
                    self._job.checkpoint.write_event(event)
        finally:
            self._take_progress(self._query)
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _take_progress(self, query: StreamingQuery) -> None:
        for progress in self._progress.new(query):
            told = counters_of(progress)
            if not told:  # a trigger that found nothing
                continue
            self._counters.update(told)
            self._rows_out += rows_out(progress)
            self._seen_batches += 1
            self._batch_ms = int(progress["durationMs"].get("triggerExecution", 0))


def start_query(spark: SparkSession, job: Job, mode: QueryMode) -> RunningQuery:
    """Start a query; what keeps it from starting is raised here, what ends it later by ``wait``."""
    return RunningQuery(spark, job, mode)
