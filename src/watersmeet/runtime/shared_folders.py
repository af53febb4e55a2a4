"""Whether the workers of a cluster see a folder of the driver's: rows that they write elsewhere would be lost."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError
from watersmeet.runtime.masters import workers_are_here
from watersmeet.runtime.storage import Storage

#: Tasks for each core: Spark may give one executor several before another has its first.
_TASKS = 4
_TASK_SECONDS = 0.1
#: What has been found to be shared, by Spark application.
_shared: set[tuple[str, str]] = set()


def require_shared(spark: SparkSession, folder: str, what: str) -> None:
    """Raise ``ConfigError`` if workers on other machines do not see a local folder, which is made if it is not there.

    The error begins with ``what``, such as "the checkpoint".  URIs of other file systems are left to those.
    """
    if workers_are_here(spark) or (path := Storage(spark).local_path(folder)) is None:
        return
    key = (str(spark.sparkContext.applicationId), path)
    if key in _shared:
        return
    marker = Path(path, f".{uuid.uuid4().hex}")
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be written: {error.strerror}", hint=_hint()) from None
    try:
        tasks = _TASKS * spark.sparkContext.defaultParallelism
        seen = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(partial(_sees, str(marker))).collect()
    finally:
        with suppress(OSError):
            marker.unlink()
    if blind := sorted({host for host, sees in seen if not sees}):
        raise ConfigError(
            f"{what} {path} is on the disk of the driver, and the executors on {', '.join(blind)} do not see it",
            hint=_hint(),
        )
    _shared.add(key)


def _hint() -> str:
    return "name a folder that all machines share, at the same path on all, or a URI such as s3a://BUCKET/FOLDER"


def _sees(marker: str, _rows: Iterator[int]) -> Iterator[tuple[str, bool]]:
    time.sleep(_TASK_SECONDS)  # or one executor would take all
    yield socket.gethostname(), Path(marker).exists()
