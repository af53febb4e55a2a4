"""How Spark writes the files of a checkpoint that is on a local disk.

Spark's default asks Hadoop's ``FileContext``, which starts two processes (``chmod``, ``readlink``) or more for each
file, and deletes a file before it replaces it.  Hadoop's ``FileSystem`` renames the same files in the same order
without either.  On other file systems it may refuse to replace a file, so there Spark's default stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from watersmeet.runtime.storage import Storage

_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
_BY_RENAMES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@contextmanager
def plain_renames(spark: SparkSession, folder: str) -> Iterator[None]:
    """Let a query that is started meanwhile rename the files of its checkpoint ``folder``, if that is on a local disk.

    A query keeps the settings of its start.  A class that the user has chosen stays.
    """
    if spark.conf.get(_SETTING, None) is not None or Storage(spark).local_path(folder) is None:
        yield
        return
    spark.conf.set(_SETTING, _BY_RENAMES)
    try:
        yield
    finally:
        spark.conf.unset(_SETTING)
