"""A job in Spark's micro-batches: each batch is a step of every operator, and is written as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.runtime.batch_results import BatchResults
from watersmeet.runtime.dataflow import Resources, build, new_buckets
from watersmeet.runtime.failures import planning
from watersmeet.runtime.job import Job, Run, batch_key
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.memory_setting import memory_setting
from watersmeet.runtime.storage import Storage
from watersmeet.settings.seek import Starts, resolve


class MicroBatches:
    """Runs a job in micro-batches."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self._spark = spark
        self._job = job
        self._checkpoint_id = ""
        self._results = BatchResults()
        self._write_error: Exception | None = None

    def start(self, *, limited: bool, available_now: bool, declares_end: bool = False) -> Run:
        """Start one Spark query on the checkpoint."""
        job, spark, settings = self._job, self._spark, self._job.plan.query.settings
        self._write_error = None  # that of a run before this one
        stored = job.checkpoint.read_plan()
        buckets = stored.buckets if stored is not None else new_buckets(spark, settings.buckets)
        seek = stored.seek if stored is not None else resolve(spark, settings.seek_to)
        control = spark.readStream.text(job.checkpoint.control)
        # on a cluster, workers do not reach every file system that Spark can
        is_reached = workers_are_here(spark) or Storage(spark).worker_path(job.checkpoint.folder) is not None
        resources = Resources(
            memory=memory_setting(spark, settings.worker_memory),
            side_folder=job.checkpoint.side,
            hot_key_folder=job.checkpoint.hot_keys if is_reached or settings.skew is not None else None,
            size_folder=job.checkpoint.sizes if is_reached else None,
        )
        with planning(job.name):
            starts = Starts(None if stored is None else stored.starts, has_read=job.checkpoint.has_batches())
            sources = job.open_sources(spark, limited, seek, starts)
            dataflow = build(spark, job.plan, sources, buckets, resources, control, job.frontier_lag)
            self._results = dataflow.results
            self._checkpoint_id = job.checkpoint.accept(
                stored, buckets, dataflow.operators, seek, starts=starts.found
            ).id
            writer = (
                dataflow.frame.writeStream.queryName(job.name)
                .option("checkpointLocation", job.checkpoint.spark)
                .foreachBatch(self._write)
            )
            if available_now:
                writer = writer.trigger(availableNow=True)
            elif settings.trigger:
                writer = writer.trigger(processingTime=f"{int(settings.trigger * 1000)} milliseconds")
            if declares_end:  # not sooner: a query that cannot start may be started in another mode
                job.checkpoint.write_event(Event(EventKind.END))
            return Run(writer.start(), partial(shutil.rmtree, dataflow.folder, ignore_errors=True))

    def has_run(self, progress: Mapping[str, Any]) -> None:
        """Do nothing: late rows were kept when the batch was written."""

    def cause(self, error: Exception) -> Exception:
        """What writing a batch raised, which Spark returns as text; else the error itself."""
        return self._write_error or error

    def starts_again(self, error: Exception) -> bool:
        """Return False: Spark has tried every task several times."""
        return False

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        try:
            with self._results.split(frame) as results:
                for output, rows in zip(self._job.outputs, results, strict=True):
                    output.write(rows, batch_id, batch_key(output.query, self._checkpoint_id, batch_id))
            self._job.keep_side_rows(batch_id, batch_key(self._job.name, self._checkpoint_id, batch_id))
        except Exception as error:
            self._write_error = error
            raise
