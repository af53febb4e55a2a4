"""What a worker process may take: as the query says, else a share of what its machine or container has."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.runtime.masters import workers_are_here
from watersmeet.settings.query_settings import LEAST_WORKER_BYTES
from watersmeet.settings.sizes import size_text
from watersmeet.state.worker_memory import WorkerMemory

_log = logging.getLogger(__name__)
#: Limits of the container, in cgroups of version 2 and 1; "max" or a huge number if there is none.
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: What is left for the system, in percent.
_FOR_SYSTEM = 20
#: A task slot has other Python processes beside the one with state: they pack and unpack rows.
_OTHER_WORKERS_BYTES = 250_000_000
#: Where executors run in containers, each with one core unless settings say otherwise.
_IN_CONTAINERS = re.compile(r"yarn|k8s://.*")
_MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class MemorySetting:
    """The memory of a worker process.

    - ``wanted``: what the query says (None: nothing).
    - ``slots``: how many tasks run at once on its machine (None: one for each core there).
    - ``jvm_bytes``: what the JVM beside it may take.
    - ``container_bytes``: what the container of both may take (None: as much as is found on the machine).
    """

    wanted: int | None = None
    slots: int | None = None
    jvm_bytes: int = 1 << 30
    container_bytes: int | None = None

    def check(self, buckets: int) -> None:
        """Raise ``ConfigError`` if one worker may take more than this machine has; warn if all together may."""
        if self.wanted is None:
            return
        machine, each = machine_memory(), size_text(self.wanted)
        has = f"this machine or its container has {size_text(machine)}"
        if self.wanted > machine:
            hint = f"set less than {size_text(machine)}, or leave it out: by default it is a share of what there is"
            raise ConfigError(f"worker_memory = '{each}', and {has}", hint=hint, option="worker_memory")
        workers = min(self.slots or 1, buckets)
        together = workers * self.wanted + self.jvm_bytes
        if together > machine:
            jvm = size_text(self.jvm_bytes)
            taken = f"{workers} workers at once with {each} each, and a JVM with {jvm}, may take {size_text(together)}"
            _log.warning("worker_memory: %s, and %s: the system may end them", taken, has)

    def here(self) -> WorkerMemory:
        """The memory of a worker on this machine."""
        if self.wanted is not None:
            return WorkerMemory(self.wanted)
        usable = (
            min(machine_memory(), self.container_bytes or sys.maxsize) * (100 - _FOR_SYSTEM) // 100 - self.jvm_bytes
        )
        share = usable // (self.slots or os.cpu_count() or 1) - _OTHER_WORKERS_BYTES
        return WorkerMemory(max(share, LEAST_WORKER_BYTES))


def memory_setting(spark: SparkSession, query: LogicalQuery, buckets: int) -> MemorySetting:
    """The memory of workers of this Spark session, for operators of a query with so many buckets.

    Raises ``ConfigError``, with its place, if workers run on this machine and one may take more than it has.
    """
    wanted, context = query.settings.worker_memory, spark.sparkContext
    jvm = context._jvm
    assert jvm is not None
    if workers_are_here(spark):
        scala = context._jsc.sc()
        slots = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
        setting = MemorySetting(wanted, int(slots), int(jvm.java.lang.Runtime.getRuntime().maxMemory()))
        try:
            setting.check(buckets)
        except ConfigError as error:
            error.position = query.text.settings_positions.get("worker_memory")
            raise
        return setting
    as_mebibytes = jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb
    return of_executors(str(context.master), dict(context.getConf().getAll()), as_mebibytes, wanted)


def of_executors(
    master: str, settings: Mapping[str, str], as_mebibytes: Callable[[str], int], wanted: int | None
) -> MemorySetting:
    """The memory of workers on a cluster, by Spark's settings; ``as_mebibytes`` reads a size as Spark does."""
    in_containers = _IN_CONTAINERS.fullmatch(master) is not None
    cores = settings.get("spark.executor.cores", "1" if in_containers else "")
    slots = max(int(cores) // int(settings.get("spark.task.cpus", "1")), 1) if cores else None

    def mebibytes(name: str, default: str) -> int:
        return int(as_mebibytes(settings.get(name, default)))

    heap = mebibytes("spark.executor.memory", "1g")
    if not in_containers:
        return MemorySetting(wanted, slots, heap * _MEBI)
    # YARN sets the process no limit that it could see, but ends a container that takes more than was asked for
    share = int(heap * float(settings.get("spark.executor.memoryOverheadFactor", "0.1")))
    least = max(share, mebibytes("spark.executor.minMemoryOverhead", "384m"))
    overhead = mebibytes("spark.executor.memoryOverhead", f"{least}m")
    whole = heap + overhead + mebibytes("spark.executor.pyspark.memory", "0")
    return MemorySetting(wanted, slots, heap * _MEBI, whole * _MEBI)


@cache
def machine_memory() -> int:
    """The bytes of memory that this machine has, or the container in which this process runs."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, _CONTAINER_LIMITS):
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(int(text))
    return min(found)
