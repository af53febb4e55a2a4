"""How much of a bounded or draining run is done: what of its input was read, and the tasks of its one batch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.runtime.batch_tasks import BatchTasks
from watersmeet.runtime.job import Run
from watersmeet.runtime.progress_watch import ProgressWatch
from watersmeet.runtime.run_progress import RunProgress

#: How long the end of a run waits for the last count of what was read.
_LAST_COUNT_SECONDS = 1.0
#: How long a report waits for it, so that what is shown of a batch is of the same batch; where it takes longer, later.
_COUNT_SECONDS = 0.2


class RunMeter:
    """Follows a run from its first Spark query on; those after it go on with the same input."""

    def __init__(self, spark: SparkSession, *, takes_one_batch: bool) -> None:
        self._tasks = BatchTasks(spark) if takes_one_batch else None
        self._watch: ProgressWatch | None = None
        self._has_committed = False

    def start(self, run: Run) -> None:
        """Follow a Spark query that was started."""
        if self._watch is None and run.input is not None:
            self._watch = ProgressWatch(run.input, time.time())

    def look(self, query: StreamingQuery) -> None:
        """See what a batch does that is under way."""
        if self._tasks is not None and not self._has_committed:
            self._tasks.look(query)

    def take(self, progress: Mapping[str, Any], *, has_committed: bool) -> None:
        """Take what Spark reports of a batch, or of a trigger that found nothing."""
        self._has_committed = self._has_committed or has_committed
        if self._watch is not None:
            self._watch.take(progress, time.time(), _COUNT_SECONDS)

    def close(self) -> None:
        """Take nothing more."""
        if self._watch is not None:
            self._watch.close(_LAST_COUNT_SECONDS)

    def progress(self, *, is_active: bool, is_over: bool) -> RunProgress | None:
        """How much is done now (None: the query runs until it is stopped); ``is_over`` if it has ended by itself."""
        if self._watch is None:
            return None
        tasks = self._tasks if not self._has_committed else None
        rated = is_active and self._tasks is None
        return RunProgress(
            inputs=self._watch.inputs,
            tasks=None if tasks is None else tasks.counted,
            remaining=self._watch.remaining(time.time()) if rated else None,
            is_over=is_over,
        )
