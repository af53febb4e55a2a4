"""Whether the workers of a cluster see a folder of the driver's: rows that they write elsewhere would be lost."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.store_folder import Place

_HINT = "name a folder that all machines share, at the same path on all"
#: The hint where a URI will do as well.
SHARED_OR_STORE = f"{_HINT}, or a URI such as s3a://BUCKET/FOLDER"
#: Tasks for each core: Spark may give one executor several before another has its first.
_TASKS = 4
_TASK_SECONDS = 0.1
#: What has been found to be shared, by Spark application and the executors that it had.
_shared: set[tuple[str, frozenset[str], str]] = set()


def require_shared(spark: SparkSession, folder: str, what: str, hint: str = _HINT) -> None:
    """Raise ``ConfigError`` if workers on other machines do not see a local folder, which is made if it is not there.

    The error begins with ``what``, such as "the checkpoint".  URIs of other file systems are left to those.  Executors
    that come later are checked when a folder is used again.  Raises ``WatersmeetError`` if workers cannot run at all.
    """
    if workers_are_here(spark) or (path := Storage(spark).local_path(folder)) is None:
        return
    key = (str(spark.sparkContext.applicationId), _executors(spark), path)
    if key in _shared:
        return
    marker = Path(path, f".{uuid.uuid4().hex}.tmp")
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be written: {error.strerror}", hint=hint) from None
    try:
        seen = _ask(spark, marker)
    finally:
        with suppress(OSError):
            marker.unlink()
    if blind := sorted({host for host, sees in seen if not sees}):
        raise ConfigError(
            f"{what} {path} is on the disk of the driver, and the executors on {', '.join(blind)} do not see it",
            hint=hint,
        )
    _shared.add(key)


def require_written(spark: SparkSession, folder: Place, what: str) -> None:
    """Raise ``ConfigError`` if workers cannot write into a folder, which begins the error as ``what``."""
    if isinstance(folder, Path):
        require_shared(spark, f"file:{folder}", what, SHARED_OR_STORE)
    elif folder.storage.worker_path(folder.uri) is None:
        raise ConfigError(
            f"{what} {folder} is on a file system that workers do not reach without Spark",
            hint="they reach folders of the machine, and stores by the S3 protocol (s3a://BUCKET/FOLDER)",
        )


def _executors(spark: SparkSession) -> frozenset[str]:
    """The addresses of the executors that Spark has now, and of the driver."""
    status = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return frozenset(f"{each.host()}:{each.port()}" for each in status)


def _ask(spark: SparkSession, marker: Path) -> list[tuple[str, bool]]:
    context = spark.sparkContext
    tasks = _TASKS * context.defaultParallelism
    try:
        return context.parallelize(range(tasks), tasks).mapPartitions(partial(_sees, str(marker))).collect()
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).strip().splitlines()
        raise WatersmeetError(
            f"no task can run on this cluster: {next(iter(reason), type(error).__name__)}",
            detail=next((line for line in reversed(reason) if "Error" in line), None),
            hint="is Watersmeet installed in the Python of every executor (PYSPARK_PYTHON)?",
        ) from None


def _sees(marker: str, _rows: Iterator[int]) -> Iterator[tuple[str, bool]]:
    time.sleep(_TASK_SECONDS)  # or one executor would take all
    yield socket.gethostname(), Path(marker).exists()
