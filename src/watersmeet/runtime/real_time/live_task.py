"""What all tasks of a real-time query share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.worker_tasks import worker_task


@contextmanager
def live_task() -> Iterator[None]:
    """Keep the files that a task writes for their owner alone; refuse a second attempt.

    All tasks of an epoch run at once.  One that ran again alone would send its rows a second time to tasks that have
    taken them already.  So the whole epoch fails, and the query runs it anew.
    """
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise WatersmeetError("a task of a real-time query has ended: its epoch must run again as a whole")
    with worker_task():
        yield


def task_number() -> int:
    """The number of this task in its stage."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
