"""The Spark that suits a job: its master, and settings beside the usual ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from watersmeet.catalog.catalog import Catalog
from watersmeet.catalog.streams import EMBEDDED
from watersmeet.cli.parameters import WorkspaceName
from watersmeet.session.modes import runs_in_real_time
from watersmeet.sql.statements import CreateStream, CreateTable, Statement

_SLOTS = 64
_SMALL_BYTES = 16 << 20
#: A short job ends before these pay: the second of the JVM's two compilers, a collector of garbage with threads of its
#: own, and a class that Spark makes for each stage of a query.  A long one needs them: with the second compiler the JVM
#: reads JSON three times as fast.
_FOR_SHORT_JOBS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m",
    "spark.sql.codegen.wholeStage": "false",
}


def spark_for(
    statements: Iterable[Statement], master: str | None, workspace: WorkspaceName, *, bounded: bool, real_time: bool
) -> tuple[str | None, Mapping[str, str] | None]:
    """The master and further settings of Spark for a job.

    In real time all tasks of a query run at once, each in a slot of its own.  On this machine slots are threads: many
    cost nothing, but there should be no more buckets than cores.
    """
    statements = tuple(statements)
    if master is not None:
        return master, None
    if real_time or runs_in_real_time(statements):
        return f"local[{_SLOTS}]", {"spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
    return None, _FOR_SHORT_JOBS if bounded and _is_small(statements, workspace) else None


def _is_small(statements: Iterable[Statement], workspace: WorkspaceName) -> bool:
    """Whether all streams of the job and its workspace are in the workspace, and hold few bytes."""
    if not isinstance(workspace, Path):
        return False
    if any(isinstance(each, CreateStream | CreateTable) and each.options for each in statements):
        return False
    if any(stream.connector != EMBEDDED for stream in Catalog(workspace).streams().values()):
        return False
    files = (workspace / "streams").glob("*/*.parquet")
    return sum(path.stat().st_size for path in files) <= _SMALL_BYTES
