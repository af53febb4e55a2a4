"""The operators of a query as Spark's stateful operators, one for each task, and the frames that go between them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.engine.frames import FRAME_DDL, FrameKind
from watersmeet.engine.specs import OperatorSpec
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.shared_results import receiver
from watersmeet.plan.task_specs import Arrival, Task, Tasks
from watersmeet.runtime.bucket_size_files import size_files
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.runtime.memory_setting import MemorySetting
from watersmeet.runtime.processor import OperatorProcessor
from watersmeet.runtime.results import ReadResults, parts_of_results, repacked, source_of_results
from watersmeet.runtime.source_frames import Source, packed, projected
from watersmeet.runtime.worker_records import RestTask
from watersmeet.runtime.worker_tasks import OperatorTask, PackTask

# A Python function copies the session's environment when it is built, and operators change that for theirs.
one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Resources:
    """The memory of a worker process, and folders, as paths or URIs that a restart finds again.

    - ``side_folder``: for late, bad and evicted rows.
    - ``hot_key_folder``: without it, hot keys are not spread.
    - ``size_folder``: without it, each bucket may hold an even share of a limit.
    """

    memory: MemorySetting = field(default_factory=MemorySetting)
    side_folder: str | None = None
    hot_key_folder: str | None = None
    size_folder: str | None = None


@dataclass(slots=True)
class TaskFrames:
    """The frames that tasks send, built task by task; ``schemas`` are the projected columns of each input.

    ``folder`` is that of this run.  Only one may be built at a time.
    """

    spark: SparkSession
    plan: PhysicalPlan
    sources: Mapping[str, Source]
    schemas: Sequence[pa.Schema]
    operators: Sequence[OperatorSpec]
    tasks: Tasks
    resources: Resources
    folder: str
    exchange: Exchange
    control: DataFrame | None
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _sent: dict[int, DataFrame] = field(default_factory=dict)  # by the operator whose results they are

    def results(self) -> DataFrame:
        """The frames of the last operator."""
        for task in self.tasks.tasks:
            self._sent[task.operators[-1]] = self._operate(task)
        return self._sent[len(self.operators) - 1]

    def _operate(self, task: Task) -> DataFrame:
        arriving = reduce(DataFrame.unionAll, self._arriving(task))
        specs = [self.operators[number] for number in task.operators]
        work = OperatorTask(
            task.members,
            self._run,
            self.resources.memory,
            self.folder,
            self.exchange,
            {spec.name: hot_keys for spec in specs if (hot_keys := self._hot_keys(spec)) is not None},
            size_files(specs, self.resources.size_folder),
        )
        with own_workers(self.spark):
            return arriving.groupBy("bucket").transformWithStateInPandas(
                OperatorProcessor(work), outputStructType=FRAME_DDL, outputMode="Append", timeMode="None"
            )

    def _arriving(self, task: Task) -> Iterator[DataFrame]:
        """What comes to a task from streams, from other tasks, and from whoever controls the query."""
        for arrival in task.arrivals:
            if arrival.input is None:
                (sender,) = arrival.senders(self.plan)
                yield self._sent[sender]
            elif self.plan.inputs[arrival.input].branches:
                yield self._results(arrival, task)
            else:
                yield self._source(arrival.input)
        if self.control is not None:
            yield control_frames(self.control, self.operators[task.operators[0]].buckets)

    def _source(self, number: int) -> DataFrame:
        """The rows of a stream."""
        part = self.plan.inputs[number]
        return packed(part, self.sources[part.input.stream.name.lower()], self.schemas[number], self._packing(number))

    def _results(self, arrival: Arrival, task: Task) -> DataFrame:
        """The results of other tasks as rows of an input, and of others that read the same."""
        senders, number = arrival.senders(self.plan), arrival.input
        assert number is not None  # these are rows of an input
        frames, outputs = [self._sent[each] for each in senders], [self.operators[each].output for each in senders]
        read = []
        for input in (number, *arrival.also):
            to = receiver(self.plan, input)
            later = None if to in task.operators else self.operators[to].name
            read.append(ReadResults(self.plan.inputs[input], self.schemas[input], self._packing(input), later))
        if (by_workers := repacked(frames, outputs, read)) is not None:
            return by_workers
        part, packing = read[0].part, read[0].packing
        frame = source_of_results(part, frames, outputs, self.exchange, packing.spec.buckets)
        source = Source(frame, parts_of_results(part), stores_frontier=True)
        return projected(part, source, self.plan.keeps_late).mapInArrow(RestTask(packing).run, FRAME_DDL)

    def _packing(self, input: int) -> PackTask:
        return PackTask(
            self.tasks.packs[input], self.exchange, self._hot_keys(self.operators[receiver(self.plan, input)])
        )

    def _hot_keys(self, spec: OperatorSpec) -> HotKeyFiles | None:
        if spec.spread is None or self.resources.hot_key_folder is None:
            return None
        return HotKeyFiles(self.resources.hot_key_folder, f"{spec.name}-{spec.fingerprint}")


def control_frames(control: DataFrame, buckets: Sequence[int]) -> DataFrame:
    """A frame of every control event for every bucket."""
    return control.select(
        F.explode(F.array(*(F.lit(bucket) for bucket in buckets))).alias("bucket"),
        F.lit(0).alias("input"),
        F.lit("").alias("part"),
        F.lit(int(FrameKind.CONTROL)).alias("kind"),
        F.lit(0).cast("bigint").alias("frontier"),
        F.coalesce(F.encode("value", "UTF-8"), F.lit(b"")).alias("payload"),
    )


@contextmanager
def own_workers(spark: SparkSession) -> Iterator[None]:
    """Give Python functions that are built meanwhile a pool of workers of their own.

    Spark keeps idle workers in one pool per environment.  Operators hold state in memory; if they shared a pool with
    packing and unpacking tasks, a bucket would often meet a worker with older state.
    """
    context = spark.sparkContext
    before = context.environment
    # another dictionary, because other threads may be copying that one: queries that run build functions for each batch
    context.environment = {**before, "WATERSMEET_OPERATOR": "1"}
    try:
        yield
    finally:
        context.environment = before
