"""How Spark writes the files of a checkpoint that is on a local disk.

Spark's default asks Hadoop's ``FileContext``, which starts two processes (``chmod``, ``readlink``) or more for each
file, and deletes a file before it replaces it.  Hadoop's ``FileSystem`` renames the same files in the same order
without either.  On other file systems it may refuse to replace a file, so there Spark's default stays.

So may the class that PySpark has for local files, Hive's ``ProxyLocalFileSystem``: the file stays as it is, and Spark
only warns.  A batch that ran again after a kill then lost what it had stored.  Hadoop's own class replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from watersmeet.runtime.storage import Storage

_CLASS = "spark.sql.streaming.checkpointFileManagerClass"
#: Settings of Hadoop that a query takes from its session, and Spark's, last: no query may start with this one alone.
BY_RENAMES: Mapping[str, str] = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # the JVM has one of the other class already
    _CLASS: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
}


@contextmanager
def plain_renames(spark: SparkSession, folder: str) -> Iterator[None]:
    """Let a query that is started meanwhile rename the files of its checkpoint ``folder``, if that is on a local disk.

    A query keeps the settings of its start.  Another class that the user has chosen stays.
    """
    if spark.conf.get(_CLASS, None) not in (None, BY_RENAMES[_CLASS]) or Storage(spark).local_path(folder) is None:
        yield
        return
    with with_settings(spark, BY_RENAMES):
        yield


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Give a session these settings, and then those from before, in the reverse order."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, known in reversed(before.items()):
            spark.conf.unset(name) if known is None else spark.conf.set(name, known)
