"""Spark's own streams in memory, which keep the tasks of an epoch running, and can bring control events.

Workers read the sources themselves, so Spark needs a source that brings no rows but lasts until an epoch ends.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.control_events import Event


class MemoryTicks:
    """A stream of texts for ``tasks`` tasks, of which each asks the driver for the next one every 10 ms."""

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        sql: Any = self._jvm.org.apache.spark.sql
        self._stream = sql.execution.streaming.sources.LowLatencyMemoryStream(
            0,
            spark._jsparkSession,
            tasks,
            sql.execution.datasources.v2.LowLatencyClock.getClock(),
            sql.Encoders.STRING(),
        )

    @property
    def frame(self) -> DataFrame:
        """The texts, in a column ``value``."""
        return DataFrame(self._stream.toDF(), self._spark)

    def add(self, text: str) -> None:
        """Add a text for the first task.

        After a restart, add the same texts first: Spark's checkpoint counts them.
        """
        texts = self._jvm.java.util.ArrayList()
        texts.add(text)
        self._stream.addData(0, self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(texts))


class ControlEvents:
    """Control events for every stage of a query: each has a stream of its own, since Spark refuses one used twice.

    The streams live as long as the query's runs, in this process.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._streams: list[MemoryTicks] = []

    def frame(self, stage: int) -> DataFrame:
        """The events (``value``: a line of JSON) for a stage; ask for the stages in their order."""
        if stage == len(self._streams):
            self._streams.append(MemoryTicks(self._spark, 1))
        return self._streams[stage].frame

    def add(self, event: Event) -> None:
        """Add an event for all stages."""
        for stream in self._streams:
            stream.add(event.to_json().decode())
