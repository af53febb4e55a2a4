"""After which failures a query in real time begins another run."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from watersmeet.errors import CheckpointError, LimitError
from watersmeet.runtime.real_time.run import may_pass

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
