"""After which failures a query in real time begins another run, and how tasks of the one before see it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import PySparkException

from tests.fuzzing.stored_queries import LocalFiles
from watersmeet.errors import CheckpointError, LimitError
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.real_time.epochs import RunStart
from watersmeet.runtime.real_time.run import may_pass
from watersmeet.runtime.real_time.run_log import RunLog
from watersmeet.runtime.storage import Storage

DEAD = "Job aborted: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (PySparkException(DEAD), True),
        (PySparkException("Connection to streaming shuffle writer 12 closed before termination"), True),
        (PySparkException("watersmeet.errors.LimitError: the state is full"), False),
        (PySparkException("[INVALID_ARRAY_INDEX] The index 5 is out of bounds. SQLSTATE: 22003"), False),
        (LimitError("the state is full"), False),
        (CheckpointError("damaged"), False),
        (OSError("no way"), True),
    ],
)
def test_another_run_begins_where_a_process_may_have_died(error: Exception, may: bool) -> None:
    assert may_pass(error, "q") is may


@pytest.mark.parametrize("rescaled", [False, True])
def test_a_run_is_seen_by_the_one_before(tmp_path: Path, *, rescaled: bool) -> None:
    storage, plan = cast("Storage", LocalFiles()), PlanFile(buckets=(0,))
    checkpoint = Checkpoint(storage, str(tmp_path))
    log = RunLog(storage, checkpoint, plan)
    log.add(0, RunStart(first=0))
    successors = log.successors(0, plan)
    assert not any(Path(each).exists() for each in successors)
    later = plan.model_copy(update={"generation": int(rescaled)})
    RunLog(storage, checkpoint, later).add(1, RunStart(first=0))
    assert [Path(each).exists() for each in successors] == [not rescaled, rescaled]
