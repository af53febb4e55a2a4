"""A running query: the runs of Spark's streaming query that its mode consists of, and its supervision."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import CheckpointError, OutageError, WatersmeetError
from watersmeet.runtime.failures import translate, whole_text
from watersmeet.runtime.history import Batch, Failure, History
from watersmeet.runtime.history_rows import HistoryRows
from watersmeet.runtime.idle_inputs import IdleWatch
from watersmeet.runtime.job import Host, Job
from watersmeet.runtime.metrics import ProgressReader, counters_of, rows_out
from watersmeet.runtime.micro_batches import MicroBatches
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.real_time.run import RealTime
from watersmeet.runtime.report import Report, report_of
from watersmeet.runtime.run_meter import RunMeter
from watersmeet.runtime.shared_folders import SHARED_OR_STORE, require_shared
from watersmeet.runtime.skipped_versions import SkippedVersions
from watersmeet.runtime.source_warnings import SourceWarnings
from watersmeet.runtime.status import PlanWords, QueryState, QueryStatus, status_of
from watersmeet.runtime.status_html import status_html
from watersmeet.settings.secrets import hide

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
#: How long a failed run waits before another one begins: a signal to all processes ends Spark before it stops a query.
_STOP_SECONDS = 0.5


class RunningQuery:
    """A query that has been started."""

    def __init__(self, spark: SparkSession, job: Job, mode: QueryMode) -> None:
        self._spark = spark
        self._job = job
        self._host: Host = RealTime(spark, job) if job.plan.query.settings.is_real_time else MicroBatches(spark, job)
        self._mode = mode
        self._query: StreamingQuery | None = None
        self._error: WatersmeetError | None = None
        self._stopping = threading.Event()
        counters = job.checkpoint.read_counters()
        self._skipped = SkippedVersions(job.name)
        self._words = PlanWords(job.plan, [output.target for output in job.outputs])
        self._ended: float | None = None
        self._history = History(started=time.time(), counters=counters)
        self._progress = ProgressReader()
        takes_one_batch = mode is not QueryMode.CONTINUOUS and not job.limits_batches
        self._meter = RunMeter(spark, takes_one_batch=takes_one_batch)
        self._history = self._history.based_on(self._report(self._history))
        self._warnings = SourceWarnings(job.name)
        with job.checkpoint.removed_if_refused():
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
        read = [input.stream.name for input in (*(part.input for part in plan.streams), *plan.tables)]
        fed = [output.target for output in self._job.outputs]
        return stream.lower() in (name.lower() for name in (*fed, *read))

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
        """Stop, and abandon the current batch; the checkpoint is kept.  One that has ended by itself stays so."""
        if not self._thread.is_alive():
            return
        self._stopping.set()
        self._job.outages.stop()
        if self._query is not None:
            try:
                self._query.stop()
            except (PySparkException, Py4JError, ConnectionError) as error:
                _log.debug("while stopping %s: %s", self.name, error)
        self._thread.join()

    def report(self) -> Report:
        """What it has done so far."""
        return self._report(self._history)

    def status(self) -> QueryStatus:
        """What it looks like now: its operators, its last hour, its failures, and how it was planned."""
        report = self._report(self._history)
        return status_of(self._job, self._words, self._mode, self._history, report, self._state(report), self._ended)

    def history(self) -> HistoryRows:
        """What it did in the last hour, as rows: rates, how long batches took, the state."""
        return HistoryRows(self._history)

    def _repr_html_(self) -> str:
        return status_html(self.status())

    def _report(self, history: History) -> Report:
        has_ended = self._ended is not None
        is_over = has_ended and self._error is None and not self._stopping.is_set()
        report = report_of(
            history.counters,
            batches=history.batches,
            rows_out=history.rows_out,
            rows_in_rate=history.rows_in_rate(time.time() if self._ended is None else self._ended),
            last_batch_ms=history.last_batch_ms,
            waiting=self._job.outages.waiting,
            streams=self._words.streams,
            units=self._words.units,
            progress=self._meter.progress(is_active=not has_ended, is_over=is_over),
        )
        return replace(report, counters={**report.counters, **self._skipped.counters})

    def _state(self, report: Report) -> QueryState:
        if self._ended is None:
            return QueryState.WAITING if report.waiting else QueryState.RUNNING
        if self._error is not None:
            return QueryState.FAILED
        return QueryState.STOPPED if self._stopping.is_set() else QueryState.ENDED

    # -- the runs of a mode ----------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Check the checkpoint and start a run; True if it processes the end of input, and no other has to follow."""
        checkpoint = self._job.checkpoint
        stored = checkpoint.read_plan()
        checkpoint.refuse_sealed(stored)
        checkpoint.prepare(stored)
        require_shared(self._spark, checkpoint.folder, "the checkpoint", SHARED_OR_STORE)
        if checkpoint.has_ended():
            if self._mode is not QueryMode.BOUNDED:
                raise CheckpointError(
                    f"a bounded run on {checkpoint.folder} has declared the end of its input but was interrupted",
                    hint="run it with --bounded again",
                )
            _log.warning(
                "%s: an interrupted run had declared the end of its input: what has come since is late", self.name
            )
            self._start(limited=False, available_now=True)
            return True
        if self._mode is QueryMode.BOUNDED and not self._job.limits_batches:  # one batch, with or without its end
            self._start(limited=False, available_now=True, declares_end=True)
            return True
        self._start(limited=True, available_now=self._mode is not QueryMode.CONTINUOUS)
        return False

    def _start(self, *, limited: bool, available_now: bool, declares_end: bool = False) -> None:
        """Start one Spark query on the checkpoint."""

        def again() -> None:
            checkpoint = self._job.checkpoint
            checkpoint.prepare(checkpoint.read_plan())  # the run before may have been broken off in its first write
            declares = declares_end and not self._job.checkpoint.has_ended()
            self._start(limited=limited, available_now=available_now, declares_end=declares)

        self._start_again = again
        self._run = self._host.start(limited=limited, available_now=available_now, declares_end=declares_end)
        self._query = self._run.query
        self._meter.start(self._run)
        if self._stopping.is_set():  # stop() came while this run started, and may have reached only the one before
            self._query.stop()

    def _supervise(self) -> None:
        try:
            self._watch_runs()
            if self._mode is QueryMode.BOUNDED and not self._stopping.is_set():
                if not self._has_ended:
                    self._has_ended = True
                    self._start_last_run()
                    self._watch_runs()
                if not self._stopping.is_set():
                    self._job.checkpoint.seal()
        except Exception as error:  # noqa: BLE001 - no failure may look like a success
            # a stop ends a wait, and what Spark does
            is_ended_by_stop = isinstance(error, OutageError) or not isinstance(error, WatersmeetError)
            if not (self._stopping.is_set() and is_ended_by_stop):
                # it has failed, even if the next line raises: Spark, which is asked for the reason, may be gone
                self._error = WatersmeetError(f"query {self.name} failed: {type(error).__name__}")
                self._error = error if isinstance(error, WatersmeetError) else self._explain(error)
                self._note_failure(self._error, went_on=False)
        finally:
            self._meter.close()
            self._ended = time.time()
            self._end_run()
            self._keep_counters()

    def _end_run(self) -> None:
        """Stop the Spark query, if it was not it that failed."""
        if self._error is not None and self._query is not None:
            with suppress(PySparkException, Py4JError, ConnectionError):
                self._query.stop()

    def _keep_counters(self) -> None:
        """Store the counters for a later run that may have nothing to process."""
        try:
            self._job.checkpoint.write_counters(self._history.counters)
        except Exception as error:  # noqa: BLE001 - they are for people only, and the JVM may have ended
            _log.debug("counters of %s could not be written: %s", self.name, error)

    def _explain(self, error: Exception) -> WatersmeetError:
        """Turn a failure into one of our errors; Spark's full text goes to failure.log in the checkpoint."""
        cause = self._host.cause(error)
        if isinstance(cause, WatersmeetError):
            return cause
        try:
            self._job.checkpoint.write_failure(hide(whole_text(error)))
        except Exception as second:  # noqa: BLE001 - the first failure is the one to report
            _log.debug("failure.log could not be written: %s", second)
        return translate(cause, self.name)

    def _start_last_run(self) -> None:
        """Start the run that processes the end of input."""
        try:
            self._start(limited=False, available_now=True, declares_end=True)
        except OutageError as error:
            self._begin_again(error)

    def _watch_runs(self) -> None:
        """Follow the Spark query, and those that follow it where it fails but may go on."""
        while True:
            try:
                return self._watch()
            except Exception as error:  # noqa: BLE001 - raised again if no run follows
                self._begin_again(error)

    def _begin_again(self, error: Exception) -> None:
        """Start a run after one that has failed, where that may help; else raise what is to be reported."""
        if self._stopping.is_set():
            raise error
        failure = self._translated(error)
        outage = failure if isinstance(failure, OutageError) else None
        if outage is None:
            if not self._host.starts_again(error) or self._stopping.wait(_STOP_SECONDS):
                raise error
            _log.warning("%s: a run has failed, and begins again where it last committed", self.name)
        while True:
            if outage is not None:
                self._job.outages.wait(outage)
            try:
                for output in self._job.outputs:
                    output.reach()
                self._start_again()
                self._note_failure(failure, went_on=True)
                return self._job.outages.reached()
            except OutageError as again:
                outage = again

    def _translated(self, error: Exception) -> WatersmeetError:
        """The error by which a run has failed, in our words."""
        cause = self._host.cause(error)
        return cause if isinstance(cause, WatersmeetError) else translate(cause, self.name)

    def _note_failure(self, error: WatersmeetError, *, went_on: bool) -> None:
        failure = Failure(time.time(), type(error).__name__, hide(str(error)), went_on)
        self._history = self._history.failed(failure)

    def _watch(self) -> None:
        """Follow the Spark query until it ends; meanwhile, report idle inputs to it."""
        assert self._query is not None
        settings = self._job.plan.query.settings
        # in real time, the tasks that follow the sources notice silence
        idle = IdleWatch(None if self._has_ended or settings.is_real_time else settings.idle_timeout)
        try:
            while not self._query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
                self._take_progress(self._query)
                self._meter.look(self._query)
                for event in idle.events(self._history.counters):
                    self._job.checkpoint.write_event(event)
        finally:
            self._take_progress(self._query)
            self._run.close()

    def _take_progress(self, query: StreamingQuery) -> None:
        for progress in self._progress.new(query):
            self._warnings.take(progress)
            self._job.outages.has_run()
            self._skipped.take(progress)
            counters = counters_of(progress)
            self._meter.take(progress, has_committed=bool(counters))
            if not counters:  # a trigger that found nothing
                continue
            self._host.has_run(progress)
            batch = Batch(
                number=int(progress["batchId"]),
                ended=time.time(),
                counters=counters,
                rows_out=rows_out(progress),
                milliseconds=int(progress["durationMs"].get("triggerExecution", 0)),
            )
            self._history = self._history.after(batch, self._report)


def start_query(spark: SparkSession, job: Job, mode: QueryMode) -> RunningQuery:
    """Start a query; raises what prevents its start, while ``wait`` raises what ends it later."""
    return RunningQuery(spark, job, mode)
