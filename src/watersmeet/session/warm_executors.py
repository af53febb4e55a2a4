"""Warms up the executors of a cluster: the first tasks of one that has just started take about ten seconds.

Its JVM loads and compiles Spark's code, and its Python imports libraries.  When an executor registers, a thread of the
driver runs a join of a few rows there, in batch mode.  Executors register when a session opens, and when Spark adds
some or replaces a lost one.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.bind.define import define_stream
from watersmeet.bind.planning import plan_query
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.dataflow import build
from watersmeet.runtime.masters import is_local
from watersmeet.runtime.memory_setting import memory_setting
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.task_frames import Resources
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, Select

_log = logging.getLogger(__name__)
#: How often the driver looks for new executors: what begins in between may meet one that is cold.
_LOOK_SECONDS = 0.05
_ROWS = 100
_SCRIPT = """
CREATE STREAM l (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM r (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
SELECT l.k, r.ts FROM l LEFT JOIN r ON l.k = r.k WITHIN INTERVAL '1' SECOND
"""
#: The columns of a source frame (connectors/__init__.py), computed from a number.
_COLUMNS = {
    "k": "CAST(number AS INT)",
    "ts": "timestamp_seconds(number)",
    "_seq": "CAST(CAST(number AS STRING) AS BINARY)",
    "_tp_time": "current_timestamp()",
}


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor, and how many tasks it runs at once."""

    id: str
    host: str
    slots: int


def keep_executors_warm(spark: SparkSession) -> None:
    """Start the thread that warms up executors, unless Spark runs its tasks in the driver, or has such a thread."""
    name = f"watersmeet-warm-{spark.sparkContext.applicationId}"
    if is_local(str(spark.sparkContext.master)) or any(each.name == name for each in threading.enumerate()):
        return
    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())  # its settings change with each join
    threading.Thread(target=_watch, args=(own,), name=name, daemon=True).start()


def _watch(spark: SparkSession) -> None:
    """Warm up every executor, present or future, until Spark stops."""
    plan, seen = _plan(), set[str]()
    while not _is_stopped(spark):
        try:
            if new := _new_executors(spark, seen):
                seen.update(executor.id for executor in new)
                _warm_up(spark, plan, new)
        except Exception as error:  # noqa: BLE001  # if executors cannot run tasks, the user's query reports it
            _log.debug("executors are not warm: %s", error)
        time.sleep(_LOOK_SECONDS)


def _is_stopped(spark: SparkSession) -> bool:
    try:
        return bool(spark._jsparkSession.sparkContext().isStopped())
    except (Py4JError, OSError):  # the JVM has ended
        return True


def _new_executors(spark: SparkSession, seen: set[str]) -> list[Executor]:
    """The executors that have registered and are not in ``seen``."""
    context = spark._jsparkSession.sparkContext()
    # the cheap question first: what the status store tells of each executor takes several calls
    if seen.issuperset(filter(None, context.getExecutorIds().mkString(",").split(","))):
        return []
    listed = context.statusStore().executorList(True)
    found = [listed.apply(number) for number in range(listed.size())]
    return [
        Executor(each.id(), re.sub(r":\d+$", "", each.hostPort()), each.maxTasks())
        for each in found
        if each.id() not in seen and each.maxTasks()  # the driver has none
    ]


def _plan() -> PhysicalPlan:
    *creates, select = parse(_SCRIPT)
    assert isinstance(select, Select)
    streams = {each.name: define_stream(each) for each in creates if isinstance(each, CreateStream)}
    return plan_query(select.query, streams)


def _warm_up(spark: SparkSession, plan: PhysicalPlan, executors: Sequence[Executor]) -> None:
    """Run the join on new executors, with as many tasks as they have slots.

    Spark runs the tasks of operators where most of what they read was written: there too.
    """
    began, slots = time.monotonic(), sum(executor.slots for executor in executors)
    names = ", ".join(executor.id for executor in executors)
    spark.sparkContext.setJobDescription(f"Watersmeet warms up executors: {names}")
    # occupy the slots while the join is planned, so that queries run elsewhere
    _preferring(spark, [executor for executor in executors for _ in range(executor.slots)]).countAsync()
    spark.conf.set("spark.sql.shuffle.partitions", str(slots))
    rows = Source(_rows(spark, executors))
    memory = memory_setting(spark, plan.query, slots)  # the default: queries that have it too find DuckDB started
    results = build(spark, plan, {"l": rows, "r": rows}, range(slots), Resources(memory)).frame
    results.collect()  # a sink would log an error if Spark stops meanwhile
    _log.debug("executors %s are warm after %.1f s", names, time.monotonic() - began)


def _rows(spark: SparkSession, executors: Sequence[Executor]) -> DataFrame:
    """The rows of one side of the join, in half as many partitions as each executor has slots: two sides fill them."""
    empty = _preferring(spark, [executor for executor in executors for _ in range(max(executor.slots // 2, 1))])
    no_columns = spark._jvm.org.apache.spark.sql.types.StructType()  # type: ignore[union-attr]
    frame = DataFrame(spark._jsparkSession.createDataFrame(empty, no_columns), spark)
    numbers = frame.select(F.explode(F.sequence(F.lit(1), F.lit(_ROWS))).alias("number"))
    return numbers.selectExpr(*(f"{expression} AS {name}" for name, expression in _COLUMNS.items()))


def _preferring(spark: SparkSession, executors: Iterable[Executor]) -> Any:
    """An RDD with an empty row, in a partition of its own, for each of the executors, which that partition prefers."""
    jvm: Any = spark._jvm
    row = jvm.org.apache.spark.sql.RowFactory.create(spark.sparkContext._gateway.new_array(jvm.Object, 0))  # type: ignore[union-attr]
    partitions = [jvm.scala.Tuple2(row, _seq(jvm, [f"executor_{each.host}_{each.id}"])) for each in executors]
    context = spark._jsparkSession.sparkContext()
    return context.makeRDD(_seq(jvm, partitions), jvm.scala.reflect.ClassTag.Any()).toJavaRDD()


def _seq(jvm: Any, items: Iterable[object]) -> Any:
    """An immutable sequence of Scala's."""
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()
