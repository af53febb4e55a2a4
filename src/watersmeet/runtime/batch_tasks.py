"""How many tasks of a query's batch have finished, as Spark's own counts say."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.runtime.run_progress import Tasks

_SECONDS = 1.0


class BatchTasks:
    """Counts the tasks of the one batch of a run, at most once a second.

    A batch may take several jobs, and Spark knows only the stages of those that have begun: what was done stays done.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._tracker: Any = spark.sparkContext._jsc.statusTracker()
        self._stages: dict[int, Tasks] = {}
        self._due = 0.0

    def look(self, query: StreamingQuery) -> Tasks:
        """Return how many have finished, of those that were planned."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _SECONDS
            with suppress(Py4JError, ConnectionError):
                self._count(str(query.runId))
        return self.counted

    @property
    def counted(self) -> Tasks:
        """What was counted last."""
        stages = self._stages.values()
        return Tasks(sum(each.done for each in stages), sum(each.planned for each in stages))

    def _count(self, group: str) -> None:
        for job in self._tracker.getJobIdsForGroup(group):
            info = self._tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds():
                found = self._tracker.getStageInfo(stage)
                if found is not None:  # Spark skips stages whose results are there
                    self._stages[stage] = Tasks(found.numCompletedTasks(), found.numTasks())
