"""A running query: the runs of Spark's streaming query that its mode consists of, and its supervision."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.errors import CheckpointError, WatersmeetError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.dataflow import Resources, Source, build, new_buckets
from watersmeet.runtime.failures import planning, translate
from watersmeet.runtime.idle_inputs import IdleWatch
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.metrics import ProgressReader, counters_of, rows_out
from watersmeet.runtime.report import Report, report_of
from watersmeet.settings.secrets import hide
from watersmeet.settings.seek import Seek, resolve

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2


class QueryMode(Enum):
    """How long a query runs."""

    CONTINUOUS = "continuous"  # until it is stopped
    BOUNDED = "bounded"  # processes the input that exists, treats it as complete, flushes and ends
    DRAIN = "drain"  # processes the input that exists and stays resumable


@dataclass(frozen=True, slots=True)
class Job:
    """What a query needs to start.

    ``open_sources`` takes whether batches are limited, and where streams begin.  ``target`` is the stream that the
    query feeds; ``write`` takes each batch's rows, its number, and a key that identifies query and batch.
    ``frontier_lag`` is set if the target stores the query's frontier.
    """

    name: str
    plan: PhysicalPlan
    target: str
    open_sources: Callable[[bool, Seek | None], Mapping[str, Source]]
    write: Callable[[DataFrame, int, str], None]
    checkpoint: Checkpoint
    frontier_lag: int | None = None


class RunningQuery:
    """A query that has been started."""

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
        self._batches = 0
        self._rows_out = 0
        self._last_batch_ms = 0
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
        """Whether it reads or feeds a stream."""
        plan = self._job.plan
        read = [input.stream.name for input in (*(part.input for part in plan.inputs), *plan.tables)]
        return stream.lower() in (name.lower() for name in (self._job.target, *read))

    @property
    def is_active(self) -> bool:
        """Whether it is running."""
        return self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ends (True), at most ``timeout`` seconds (False); raises the query's error if it failed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            # short waits, so that a signal reaches the main thread
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._thread.join(_POLL_SECONDS if left is None else min(_POLL_SECONDS, left))
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """Stop, and abandon the current batch; the checkpoint is kept."""
        self._stopping.set()
        if self._query is not None:
            try:
                self._query.stop()
            except (PySparkException, Py4JError, ConnectionError) as error:
                _log.debug("while stopping %s: %s", self.name, error)
        self._thread.join()

    def report(self) -> Report:
        """What it has done so far."""
        return report_of(
            self._counters, batches=self._batches, rows_out=self._rows_out, last_batch_ms=self._last_batch_ms
        )

    # -- the runs of a mode ----------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Check the checkpoint and start a run; True if it resumes an end of input that was not fully processed."""
        checkpoint = self._job.checkpoint
        stored = checkpoint.read_plan()
        checkpoint.refuse_sealed(stored)
        checkpoint.prepare()
        if checkpoint.has_ended():
            if self._mode is not QueryMode.BOUNDED:
                raise CheckpointError(
                    f"a bounded run on {checkpoint.folder} has declared the end of its input but was interrupted",
                    hint="run it with --bounded again",
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
            # on a cluster, workers may not reach every file system that Spark can
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
            # Spark would return it as text
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
        except Exception as error:  # noqa: BLE001 - no failure may look like a success
            if not self._stopping.is_set():
                self._error = self._explain(error)
        finally:
            self._keep_counters()

    def _keep_counters(self) -> None:
        """Store the counters for a later run that may have nothing to process."""
        try:
            self._job.checkpoint.write_counters(self._counters)
        except Exception as error:  # noqa: BLE001 - they are for people only, and the JVM may have ended
            _log.debug("counters of %s could not be written: %s", self.name, error)

    def _explain(self, error: Exception) -> WatersmeetError:
        """Turn a failure into one of our errors; Spark's full text goes to failure.log in the checkpoint."""
        cause = self._write_error or error
        if isinstance(cause, WatersmeetError):
            return cause
        try:
            self._job.checkpoint.write_failure(hide(str(error)))
        except Exception as second:  # noqa: BLE001 - the first failure is the one to report
            _log.debug("failure.log could not be written: %s", second)
        return translate(cause, self.name)

    def _watch(self) -> None:
        """Follow the Spark query until it ends; meanwhile, report idle inputs to it."""
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
            counters = counters_of(progress)
            if not counters:  # a trigger that found nothing
                continue
            self._counters.update(counters)
            self._rows_out += rows_out(progress)
            self._batches += 1
            self._last_batch_ms = int(progress["durationMs"].get("triggerExecution", 0))


def start_query(spark: SparkSession, job: Job, mode: QueryMode) -> RunningQuery:
    """Start a query; raises what prevents its start, while ``wait`` raises what ends it later."""
    return RunningQuery(spark, job, mode)
