"""A job in Spark's real-time mode: which epoch comes first, where the sources begin, and Spark's settings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.errors import LostProcessError, WatersmeetError
from watersmeet.runtime.buckets import buckets_of
from watersmeet.runtime.checkpoint_files import plain_renames
from watersmeet.runtime.failures import planning, raised, translate
from watersmeet.runtime.job import Job, Run, batch_key, query_key
from watersmeet.runtime.memory_setting import memory_setting
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.real_time.dataflow import build_live, live_inputs, source_tasks
from watersmeet.runtime.real_time.epochs import SINK_FOLDER, Epochs, RunStart, named_runs, next_run
from watersmeet.runtime.real_time.run_log import RunLog
from watersmeet.runtime.real_time.sinks import RunName
from watersmeet.runtime.real_time.spark_needs import check_setting, check_slots
from watersmeet.runtime.real_time.ticks import ControlEvents
from watersmeet.runtime.real_time.writing import Target, written
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.task_frames import Resources
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


#: How Spark's errors about a value end (class 22 of SQL's standard: data exceptions), which comes again in every run.
_OF_A_VALUE = "SQLSTATE: 22"


class RealTime:
    """Runs a job in real time; with ``takes_events``, ``control`` brings its runs control events."""

    def __init__(self, spark: SparkSession, job: Job, *, takes_events: bool = False) -> None:
        self._spark = _session_of_its_own(spark)
        self._job = job
        self.control = ControlEvents(self._spark) if takes_events else None
        self._storage = Storage(spark)
        self._plan: PlanFile | None = None
        self._has_committed = False
        self._failures = 0  # since an epoch was committed

    def start(self, *, limited: bool, available_now: bool, declares_end: bool = False) -> Run:
        """Start a run: it begins after the last epoch that Spark has committed.

        Raises ``ConfigError`` if Spark has too few task slots, or was started without a setting that this needs.
        """
        check_setting(self._spark)
        job, spark, settings = self._job, self._spark, self._job.plan.query.settings
        stored = job.checkpoint.read_plan()
        buckets = buckets_of(spark, stored, settings.buckets)
        seek = stored.seek if stored is not None else resolve(spark, settings.seek_to)
        with planning(job.name), ExitStack() as opened:
            sinks = job.live_sinks()  # first: no number of task slots would help one that is refused
            for sink in sinks:
                opened.callback(sink.close)
            sources = job.open_sources(spark, limited, seek, None)
            log = RunLog(self._storage, job.checkpoint, stored)
            starts = log.read()
            run, first, base = next_run(starts, log.committed())
            origin = starts[0] if starts else self._origin(sources, buckets)
            resources = Resources(
                memory_setting(spark, job.plan.query, len(buckets)),
                job.checkpoint.side,
                size_folder=job.checkpoint.sizes,
            )
            epochs = Epochs(job.checkpoint.epochs(stored), run, first, base)
            kept = {} if stored is None else stored.kept_buckets
            joint = None if stored is None else stored.tasks
            dataflow = build_live(
                spark, job.plan, sources, buckets, resources, epochs, origin, self.control, kept=kept, joint=joint
            )
            check_slots(spark, dataflow.slots, len(buckets), dataflow.stages)
            operators, tasks = dataflow.operators, dataflow.tasks
            plan = job.checkpoint.accept(stored, buckets, operators, seek, settings.mode, tasks=tasks)
            if job.said is not None:
                job.checkpoint.write_said(plan.generation, job.said)
            self._plan, self._has_committed = plan, False
            log.remove_side_output(first)
            for epoch in log.side_epochs()[-2:]:  # in case the driver ended before it kept those of the last epochs
                self._keep_side_rows(plan, epoch)
            start = origin.model_copy(update={"first": first})
            log.add(run, start)
            runs, since = named_runs([*starts, start]), log.began_after(first) if run else None
            targets = []
            notes, successors = f"{epochs.folder}/{SINK_FOLDER}", log.successors(run, plan)
            for query, output, sink in zip(job.plan.queries, job.outputs, sinks, strict=True):
                name = RunName(query_key(output.query, plan.id), run, runs, notes, successors)
                if run:
                    sink.take_back(spark, name, since)
                targets.append(Target(query, sink, sink.open(spark, name)))
            writer = (
                written(dataflow.frame, targets)
                .queryName(job.name)
                .option("checkpointLocation", job.checkpoint.spark(plan))
                .outputMode("update")
                .trigger(realTime=f"{int(settings.epoch * 1000)} milliseconds")  # type: ignore[call-overload]
            )
            with plain_renames(self._spark, job.checkpoint.folder):
                started = writer.start()
            return Run(started, opened.pop_all().close)

    def has_run(self, progress: Mapping[str, Any]) -> None:
        """Keep the side rows of an epoch that Spark has committed; with the first, what came before is not needed."""
        plan = self._plan
        assert plan is not None  # a run has started
        self._failures = 0
        self._job.checkpoint.refuse_rescaled(plan)
        if plan.generation and not self._has_committed:
            self._job.checkpoint.remove_other_generations(plan)
        self._has_committed = True
        self._keep_side_rows(plan, int(progress["batchId"]))

    def cause(self, error: Exception) -> Exception:
        """The error itself."""
        return error

    def starts_again(self, error: Exception) -> bool:
        """Whether a process may just have died, and has not done so too often in a row."""
        self._failures += 1
        return may_pass(error, self._job.name) and self._failures < _MOST_RUNS

    def _origin(self, sources: Mapping[str, Source], buckets: tuple[int, ...]) -> RunStart:
        """What the first run begins with, and later ones keep."""
        positions = {alias: live.topic.start() for alias, live in live_inputs(self._job.plan, sources).items()}
        return RunStart(first=0, positions=positions, tasks=source_tasks(self._job.plan, sources, buckets))

    def _keep_side_rows(self, plan: PlanFile, epoch: int) -> None:
        self._job.keep_side_rows(epoch, batch_key(self._job.name, plan.id, epoch))


def may_pass(error: Exception, name: str) -> bool:
    """Whether another run may do without an error: a worker or an executor was lost, or nobody knows what it was."""
    if not isinstance(error, PySparkException):
        return not isinstance(error, WatersmeetError)
    if _OF_A_VALUE in raised(error):
        return False
    found = translate(error, name)
    return type(found) is WatersmeetError or isinstance(found, LostProcessError)


def _session_of_its_own(spark: SparkSession) -> SparkSession:
    """A session with the same functions, views and settings, and those of real time; Spark reads them in each epoch."""
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in SETTINGS.items():
        own.conf.set(name, value)
    return own
