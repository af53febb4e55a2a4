"""A job in Spark's micro-batches: each batch is a step of every operator, and is written as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.runtime.batch_results import BatchResults
from watersmeet.runtime.buckets import buckets_of
from watersmeet.runtime.checkpoint_files import plain_renames
from watersmeet.runtime.dataflow import build
from watersmeet.runtime.exchange import BATCHES_BEFORE
from watersmeet.runtime.failures import is_of_absence, is_of_ended_command, planning
from watersmeet.runtime.job import Job, Run, batch_key
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.memory_setting import memory_setting
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.run_progress import RunInput
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.source_logs import source_logs
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.task_frames import Resources
from watersmeet.settings.seek import Starts, resolve

#: Runs in a row that fail before one commits a batch.
_MOST_RUNS = 3


class MicroBatches:
    """Runs a job in micro-batches."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self._spark = spark
        self._job = job
        self._plan: PlanFile | None = None
        self._has_committed = False
        self._results = BatchResults()
        self._write_error: Exception | None = None
        self._failures = 0

    def start(self, *, limited: bool, available_now: bool, declares_end: bool = False) -> Run:
        """Start one Spark query on the checkpoint."""
        job, spark, settings = self._job, self._spark, self._job.plan.query.settings
        self._write_error = None  # that of a run before this one
        stored = job.checkpoint.read_plan()
        buckets = buckets_of(spark, stored, settings.buckets)
        seek = stored.seek if stored is not None else resolve(spark, settings.seek_to)
        control = spark.readStream.text(job.checkpoint.control)
        # on a cluster, workers do not reach every file system that Spark can
        is_reached = workers_are_here(spark) or Storage(spark).worker_path(job.checkpoint.folder) is not None
        resources = Resources(
            memory=memory_setting(spark, job.plan.query, len(buckets)),
            side_folder=job.checkpoint.side,
            hot_key_folder=job.checkpoint.hot_keys if is_reached or settings.skew is not None else None,
            size_folder=job.checkpoint.sizes if is_reached else None,
        )
        with planning(job.name):
            has_read = job.checkpoint.has_batches(stored)
            starts = Starts(None if stored is None else stored.starts, has_read=has_read)
            sources = job.open_sources(spark, limited, seek, starts)
            kept = {} if stored is None else stored.kept_buckets
            tasks = None if stored is None else stored.tasks
            dataflow = build(
                spark, job.plan, sources, buckets, resources, control, job.frontier_lag, kept=kept, tasks=tasks
            )
            self._results = dataflow.results
            plan = job.checkpoint.accept(
                stored, buckets, dataflow.operators, seek, starts=starts.found, tasks=dataflow.tasks
            )
            if job.said is not None:
                job.checkpoint.write_said(plan.generation, job.said)
            self._plan, self._has_committed = plan, False
            writer = (
                dataflow.frame.writeStream.queryName(job.name)
                .option("checkpointLocation", job.checkpoint.spark(plan))
                .foreachBatch(self._write)
            )
            if available_now:
                writer = writer.trigger(availableNow=True)
            elif settings.trigger:
                writer = writer.trigger(processingTime=f"{int(settings.trigger * 1000)} milliseconds")
            if declares_end:  # not sooner: a query that cannot start may be started in another mode
                job.checkpoint.write_event(Event(EventKind.END))
            with _numbered_from(spark, plan.batches_before), plain_renames(spark, job.checkpoint.folder):
                query = writer.start()
            return Run(
                query,
                partial(shutil.rmtree, dataflow.folder, ignore_errors=True),
                self._input(sources, plan, is_new=not has_read) if available_now else None,
            )

    def _input(self, sources: Mapping[str, Source], plan: PlanFile, *, is_new: bool) -> RunInput:
        """How to measure what a run reads."""
        names = {part.input.stream.name.lower(): part.input.stream.name for part in self._job.plan.streams}
        measures = {names[name]: source.measures for name, source in sources.items()}
        logs = source_logs(partial(Storage, self._spark), self._job.checkpoint.spark(plan))
        return RunInput(measures, logs, is_new)

    def has_run(self, progress: Mapping[str, Any]) -> None:
        """Delete the state of before a change of the number of buckets, which is no longer needed."""
        if not self._has_committed and self._plan is not None and self._plan.generation:
            self._job.checkpoint.remove_other_generations(self._plan)
        self._has_committed = True
        self._failures = 0

    def cause(self, error: Exception) -> Exception:
        """What writing a batch raised, which Spark returns as text; else the error itself."""
        return self._write_error or error

    def starts_again(self, error: Exception) -> bool:
        """Whether a file system failed in a way that passes, not too often in a row: all else Spark has tried again."""
        self._failures += 1
        return (is_of_ended_command(error) or is_of_absence(error)) and self._failures < _MOST_RUNS

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        plan = self._plan
        assert plan is not None  # there is one when a batch is written
        batch_id += plan.batches_before
        try:
            self._job.checkpoint.refuse_rescaled(plan)
            with self._results.split(frame) as results:
                for output, rows in zip(self._job.outputs, results, strict=True):
                    output.write(rows, batch_id, batch_key(output.query, plan.id, batch_id))
            self._job.keep_side_rows(batch_id, batch_key(self._job.name, plan.id, batch_id))
        except Exception as error:
            self._write_error = error
            raise


@contextmanager
def _numbered_from(spark: SparkSession, batches: int) -> Iterator[None]:
    """Let the tasks of a query that is started meanwhile know how many batches it has taken before."""
    context = spark.sparkContext
    context.setLocalProperty(BATCHES_BEFORE, str(batches))
    try:
        yield
    finally:
        context.setLocalProperty(BATCHES_BEFORE, None)  # type: ignore[arg-type]  # PySpark's way to remove it
