"""A cluster that is not there: what a batch costs many buckets on many executors.

Packing, routing and steps are those of the engine, run bucket by bucket in this process, with their CPU time measured
and their frames counted.  Tasks are then laid on cores as Spark does it: each core takes the next task when it is free.
What Spark itself costs is not measured here: ``Spark`` says what is assumed.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.in_process import Engine
from watersmeet.engine.bucket_step import run_step
from watersmeet.engine.frames import Frame
from watersmeet.engine.routing import home_indexes
from watersmeet.engine.specs import OperatorSpec
from watersmeet.state.manifest import MANIFEST

#: A frame's columns beside its payload, in Spark's shuffle.
_HEAD_BYTES = 48


@dataclass(frozen=True, slots=True)
class Spark:
    """What Spark takes for itself.

    Seconds of an executor's core for a ``task`` with state; seconds of the driver for any task and for a batch; files
    of the checkpoint for a task with state.
    """

    task: float
    driver_task: float
    driver_batch: float
    files: float


@dataclass(slots=True)
class Sent:
    """Frames by their kind, and their bytes."""

    frames: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, frames: Iterable[Frame]) -> None:
        """Count frames."""
        for frame in frames:
            kind = "rows" if frame.kind.has_rows else frame.kind.name.lower()
            self.frames[kind] += 1
            self.bytes[kind] += _HEAD_BYTES + len(frame.payload)


@dataclass(slots=True)
class Costs:
    """One batch: seconds of each packing task, seconds of each operator's buckets, frames, and bytes of manifests."""

    packing: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    sent: Sent = field(default_factory=Sent)
    manifests: int = 0
    state: int = 0


class ManyBuckets(Engine):
    """An engine whose inputs are packed by several tasks, and that notes what each bucket's step takes."""

    def __init__(self, script: str, buckets: Sequence[int]) -> None:
        super().__init__(script, buckets)
        self.costs = Costs()

    def batch(self, inputs: Sequence[Sequence[pa.Table]]) -> Costs:
        """Take one batch, each input as the tables of its tasks; return what it cost."""
        self.costs = Costs()
        packed: list[list[Frame]] = []
        for number, tables in enumerate(inputs):
            frames: list[Frame] = []
            for table in tables:
                one = [[table] if each == number else [] for each in range(len(inputs))]
                began = time.process_time()
                frames += self.pack(one)[number]
                self.costs.packing.append(time.process_time() - began)
            packed.append(frames)
            self.costs.sent.add(frames)
        self.step(packed)
        for store in self._stores.values():
            self.costs.manifests += len(store.get(MANIFEST) or b"")
            self.costs.state += sum(map(len, store.values()))
        return self.costs

    def _operate(self, spec: OperatorSpec, arriving: Iterable[Frame]) -> list[Frame]:  # type: ignore[override]
        by_bucket: dict[int, list[Frame]] = defaultdict(list)
        for frame in arriving:
            by_bucket[frame.bucket].append(frame)
        sent: list[Frame] = []
        for bucket, frames in sorted(by_bucket.items()):
            store, working_set = self._stores[spec.name, bucket], self._sets.get(spec.name, str(bucket))
            began = time.process_time()
            sent += run_step(spec, bucket, frames, store, working_set, hot_keys=self._hot_keys[spec.name])
            self.costs.steps[spec.name].append(time.process_time() - began)
        self.costs.sent.add(sent)
        return sent


def makespan(tasks: Sequence[float], cores: int) -> float:
    """Return how long tasks take on so many cores, each taken by the core that is free first."""
    free = [0.0] * min(cores, len(tasks))
    for seconds in tasks:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free, default=0.0)


def batch_seconds(costs: Costs, cores: int, spark: Spark) -> tuple[float, float]:
    """Return how long the batch takes, and how much of that the driver is busy: stages follow each other.

    A stage takes as long as its tasks on the cores, or as the driver to hand them out.
    """
    stages = [costs.packing, *([spark.task + each for each in steps] for steps in costs.steps.values())]
    driver = spark.driver_batch + spark.driver_task * sum(map(len, stages))
    taken = sum(max(makespan(each, cores), spark.driver_task * len(each)) for each in stages)
    return spark.driver_batch + taken, driver


def moved(before: int, after: int, keys: int = 1_000_000) -> float:
    """Return the share of keys whose bucket has another number after a change of the number of buckets."""
    hashes = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, keys)
    return float(np.mean(home_indexes(hashes, before) != home_indexes(hashes, after)))
