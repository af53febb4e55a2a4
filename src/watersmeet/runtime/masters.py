"""Spark masters: which of them run their tasks in this process, with how many cores."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

#: How often Spark tries a task that Watersmeet's local sessions run: as often as on a cluster.
TASK_ATTEMPTS = 4
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def with_retries(master: str) -> str:
    """The master with ``TASK_ATTEMPTS`` if it is local and names no number of attempts of its own.

    Spark's local mode tries each task once by default, so one dead Python worker would end a query.
    """
    found = _LOCAL.fullmatch(master)
    if found is None or found[2] is not None:
        return master
    return f"local[{found[1] or 1}, {TASK_ATTEMPTS}]"


def is_local(master: str) -> bool:
    """Whether a master runs its tasks in the driver's JVM."""
    return _LOCAL.fullmatch(master) is not None


def cores_of_local_cluster(master: str) -> int | None:
    """The cores of all executors of ``local-cluster[EXECUTORS, CORES, MEBIBYTES]``; None for other masters.

    Its executors are processes of this machine, which the driver's JVM starts: a cluster to try things on.
    """
    found = _LOCAL_CLUSTER.fullmatch(master)
    return None if found is None else int(found[1]) * int(found[2])


def local_cores(master: str) -> int | None:
    """The number of cores that a local master names; None for all of them (``*``), and for other masters."""
    found = _LOCAL.fullmatch(master)
    if found is None or found[1] == "*":
        return None
    return int(found[1] or 1)


def workers_are_here(spark: SparkSession) -> bool:
    """Whether all Python workers run on this machine and can share its files."""
    return is_local(str(spark.sparkContext.master))
