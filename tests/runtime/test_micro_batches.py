"""Which failures of micro-batches are followed by another run."""

from typing import cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from watersmeet.errors import LostProcessError
from watersmeet.runtime.failures import translate
from watersmeet.runtime.job import Job
from watersmeet.runtime.micro_batches import MicroBatches


def failure(stack: str) -> Exception:
    error = StreamingQueryException("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: ")
    vars(error)["_stackTrace"] = stack
    return error


def micro_batches() -> MicroBatches:
    return MicroBatches(cast(SparkSession, None), cast(Job, None))


ENDED = failure(
    "Caused by: ExitCodeException exitCode=143: \n\tat org.apache.hadoop.util.Shell.runCommand(Shell.java:1071)"
)


#: An answer of a store that was broken off amid its headers reads as the list of an empty folder.
ABSENT = failure(
    "java.io.FileNotFoundException: No such file or directory: s3a://lake/q/spark/sources/0\n"
    "\tat org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.listBatches(HDFSMetadataLog.scala:1)"
)


EMPTY = failure("org.apache.spark.SparkRuntimeException: [STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot")


@pytest.mark.parametrize("error", [ENDED, ABSENT, EMPTY])
def test_what_may_pass_is_followed_by_two_runs(error: Exception) -> None:
    host = micro_batches()
    assert [host.starts_again(error) for _ in range(3)] == [True, True, False]


def test_what_is_reported_after_them_may_pass_too() -> None:
    error = translate(ENDED, "q")
    assert isinstance(error, LostProcessError)
    assert error.message.startswith("query q failed: a command that Hadoop runs for files (chmod) ended with 143")


def test_a_batch_between_them_counts_anew() -> None:
    host = micro_batches()
    for _ in range(3):
        assert host.starts_again(ENDED)
        assert host.starts_again(ENDED)
        host.has_run({})


@pytest.mark.parametrize(
    "stack",
    [
        "ExitCodeException exitCode=1: no such file",
        "java.io.IOException: 143",
        str(vars(ABSENT)["_stackTrace"]).replace("s3a://lake", "file:/lake"),
        "java.io.FileNotFoundException: No such file or directory: s3a://lake/in/1.json\n\tat a.B(B.java)",
        "",
    ],
)
def test_nothing_else_is(stack: str) -> None:
    assert not micro_batches().starts_again(failure(stack))
