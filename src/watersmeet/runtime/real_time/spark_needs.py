"""What a query in real time needs of the Spark that runs it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError
from watersmeet.runtime.masters import is_local

#: A setting with which Spark must have been started.  Without it, Spark takes what a Python function has sent only when
#: it has no more to send to it.
PIPELINED = "spark.python.udf.pipelined.enabled"


def check_setting(spark: SparkSession) -> None:
    """Raise ``ConfigError`` if Spark was started without ``PIPELINED``."""
    if spark.conf.get(PIPELINED, "false") != "true":
        raise ConfigError(
            f"in real time Spark needs the setting {PIPELINED} = true, which this one was started without",
            hint="set it when the Spark session is built; watersmeet.connect() does so for a Spark that it starts",
        )


def check_slots(spark: SparkSession, needed: int, buckets: int, stages: int) -> None:
    """Raise ``ConfigError`` if Spark cannot run all tasks at once: they would wait for each other without end.

    Of those ``needed``, each of the ``stages`` has a task for every bucket.
    """
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    slots = int(context.maxNumConcurrentTasks(profile))
    if slots >= needed:
        return
    fitting = buckets - -(-(needed - slots) // stages)
    fewer = f"SETTINGS buckets = {fitting}, or " if fitting > 0 else ""
    more = (
        f"start Spark with master local[{needed}] or more, and keep buckets = {buckets}: slots are threads, which need"
        " no cores of their own"
        if is_local(str(spark.sparkContext.master))
        else "give Spark more executors or cores (spark.executor.cores)"
    )
    raise ConfigError(
        f"in real time all tasks of this query run at once: it needs {needed} task slots, and Spark has {slots}",
        detail=f"{stages * buckets} of them for {buckets} buckets, of which there is by default one for each shuffle"
        " partition",
        hint=f"{fewer}{more}",
    )
