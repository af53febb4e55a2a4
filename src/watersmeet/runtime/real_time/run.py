"""A job in Spark's real-time mode: which epoch comes first, where the sources begin, and Spark's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.dataflow import Resources, Source, new_buckets
from watersmeet.runtime.failures import planning, translate
from watersmeet.runtime.job import Job, Run, batch_key, query_key
from watersmeet.runtime.memory_setting import memory_setting
from watersmeet.runtime.real_time.dataflow import build_live, live_inputs, source_tasks
from watersmeet.runtime.real_time.epochs import Epochs, RunStart, named_runs, next_run
from watersmeet.runtime.real_time.run_log import RunLog
from watersmeet.runtime.real_time.sinks import RunName
from watersmeet.runtime.real_time.spark_needs import check_setting, check_slots
from watersmeet.runtime.real_time.ticks import ControlEvents
from watersmeet.runtime.storage import Storage
from watersmeet.settings.seek import resolve

#: Spark's settings of a query in real time; docs/design tells why it is safe without the allow-list.
SETTINGS = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
    # each row is a bundle of frames: sent on at once, not when more have come
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}

#: How many runs may fail one after the other.  More than Spark's attempts at a task: where another query of this Spark
#: is stopped, Spark may take it for a dead daemon, and ends all Python workers.
_MOST_RUNS = 10


class RealTime:
    """Runs a job in real time; with ``takes_events``, ``control`` brings its runs control events."""

    def __init__(self, spark: SparkSession, job: Job, *, takes_events: bool = False) -> None:
        self._spark = _session_of_its_own(spark)
        self._job = job
        self.control = ControlEvents(self._spark) if takes_events else None
        self._log = RunLog(Storage(spark), job.checkpoint)
        self._checkpoint_id = ""
        self._failures = 0  # since an epoch was committed

    def start(self, *, limited: bool, available_now: bool, declares_end: bool = False) -> Run:
        """Start a run: it begins after the last epoch that Spark has committed.

        Raises ``ConfigError`` if Spark has too few task slots, or was started without a setting that this needs.
        """
        check_setting(self._spark)
        job, spark, settings = self._job, self._spark, self._job.plan.query.settings
        stored = job.checkpoint.read_plan()
        buckets = stored.buckets if stored is not None else new_buckets(spark, settings.buckets)
        seek = stored.seek if stored is not None else resolve(spark, settings.seek_to)
        with planning(job.name):
            sources = job.open_sources(spark, limited, seek, None)
            starts = self._log.read()
            run, first, base = next_run(starts, self._log.committed())
            origin = starts[0] if starts else self._origin(sources, buckets)
            resources = Resources(memory_setting(spark, settings.worker_memory), job.checkpoint.side)
            epochs = Epochs(job.checkpoint.epochs, run, first, base)
            dataflow = build_live(spark, job.plan, sources, buckets, resources, epochs, origin, self.control)
            check_slots(spark, dataflow.slots)
            self._checkpoint_id = job.checkpoint.accept(stored, buckets, dataflow.operators, seek, settings.mode).id
            self._log.remove_side_output(first)
            self._keep_side_rows()
            start = origin.model_copy(update={"first": first})
            self._log.add(run, start)
            name = RunName(query_key(job.name, self._checkpoint_id), run, named_runs([*starts, start]))
            sink = job.live_sink()
            started = (
                sink.write(dataflow.frame, name)
                .queryName(job.name)
                .option("checkpointLocation", job.checkpoint.spark)
                .outputMode("update")
                .trigger(realTime=f"{int(settings.epoch * 1000)} milliseconds")  # type: ignore[call-overload]
                .start()
            )
        return Run(started, sink.close)

    def has_run(self, progress: Mapping[str, Any]) -> None:
        """Keep the side rows of an epoch that Spark has committed."""
        self._failures = 0
        epoch = int(progress["batchId"])
        self._job.keep_side_rows(epoch, batch_key(self._job.name, self._checkpoint_id, epoch))

    def cause(self, error: Exception) -> Exception:
        """The error itself."""
        return error

    def starts_again(self, error: Exception) -> bool:
        """Whether a process may just have died, and has not done so too often in a row."""
        self._failures += 1
        is_known = isinstance(error, WatersmeetError) or (
            isinstance(error, PySparkException) and type(translate(error, self._job.name)) is not WatersmeetError
        )
        return not is_known and self._failures < _MOST_RUNS

    def _origin(self, sources: Mapping[str, Source], buckets: tuple[int, ...]) -> RunStart:
        """What the first run begins with, and later ones keep."""
        positions = {alias: live.topic.start() for alias, live in live_inputs(self._job.plan, sources).items()}
        return RunStart(first=0, positions=positions, tasks=source_tasks(self._job.plan, sources, buckets))

    def _keep_side_rows(self) -> None:
        """Keep those of the last epochs, in case the driver ended before it did."""
        for epoch in self._log.side_epochs()[-2:]:
            self._job.keep_side_rows(epoch, batch_key(self._job.name, self._checkpoint_id, epoch))


def _session_of_its_own(spark: SparkSession) -> SparkSession:
    """A session with the same functions, views and settings, and those of real time; Spark reads them in each epoch."""
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in SETTINGS.items():
        own.conf.set(name, value)
    return own
