"""What Spark raises, in one sentence."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from watersmeet.errors import CheckpointError, ConnectorError, OutageError, SinkOutageError, WatersmeetError
from watersmeet.runtime.failures import translate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "An error occurred while calling o2015.save.\n: java.io.IOException: Mkdirs failed to create file:/x\n"
            "\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:458)\n",
            "Mkdirs failed to create file:/x",
            id="a call of Java's",
        ),
        pytest.param(
            "Job aborted.\n\tat a.B.c(B.java:1)\nCaused by: a.b.OuterException: outer\n\tat a.B.c(B.java:2)\n"
            "Caused by: java.net.ConnectException: Connection refused\n\t... 3 more\n",
            "Connection refused",
            id="the innermost cause",
        ),
        pytest.param(
            "Task failed\nTraceback (most recent call last):\n  File 'x.py', line 1\nValueError: 3 is no day\n",
            "ValueError: 3 is no day",
            id="an error of Python",
        ),
        pytest.param("java.lang.NullPointerException", "java.lang.NullPointerException", id="a class and no more"),
        pytest.param("", "no reason was given", id="nothing"),
    ],
)
def test_a_failure_is_reported_by_its_most_informative_line(text: str, message: str) -> None:
    assert translate(Exception(text), "q").message == f"query q failed: {message}"


def test_an_error_of_ours_comes_back_as_it_was_raised() -> None:
    text = "Traceback\nwatersmeet.errors.ConnectorError: 3 rows do not fit\nin file a\nhint: mend it\n\tat a.B(B.java)"
    error = translate(Exception(text), "q")
    assert isinstance(error, ConnectorError)
    assert (error.message, error.detail, error.hint) == ("3 rows do not fit", "in file a", "mend it")
    other = translate(Exception("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update"), "q")
    assert isinstance(other, CheckpointError)


@pytest.mark.parametrize(
    "text",
    [
        "Task 1 failed 4 times: a.b.SparkException: Python worker exited unexpectedly (crashed).\n\tat a.B",
        "Task 0 failed 4 times: a.b.SparkException: Python daemon failed to launch worker.\n\tat a.B",
        "Caused by: java.io.IOException: Broken pipe\n\tat java.base/a.B(B)\n\tat org.apache.spark.api.python.C(C)",
        "Job aborted.\nCaused by: java.io.EOFException\n\tat java.io.DataInputStream.readInt(DataInputStream.java)",
    ],
)
def test_a_dead_worker_is_named(text: str) -> None:
    error = translate(Exception(text), "q")
    assert error.message == "query q failed: a Python worker died, perhaps because memory ran out"
    assert "SETTINGS worker_memory" in str(error.hint)


def test_a_pipe_that_breaks_elsewhere_is_no_dead_worker() -> None:
    text = "Caused by: java.io.IOException: Broken pipe\n\tat java.base/a.B(B.java)\n\tat org.postgresql.C(C.java)"
    assert translate(Exception(text), "q").message == "query q failed: Broken pipe"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o462.getResult"),
    ],
)
def test_the_end_of_the_jvm_is_named(error: Exception) -> None:
    assert translate(error, "q").message == "query q ended: Spark's JVM has ended"


KAFKA = "org.apache.kafka.common.errors"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"Caused by: {KAFKA}.TimeoutException: Timed out waiting for a node assignment", OutageError),
        (f"Caused by: {KAFKA}.DisconnectException\n\tat a.B(B.java)", OutageError),
        (
            f"{KAFKA}.TimeoutException: Topic t\n\tat org.apache.spark.sql.kafka010.KafkaRowWriter.x(K.scala)",
            SinkOutageError,
        ),
        ("watersmeet.errors.OutageError: Kafka sent no records\nhint: x\n SQLSTATE: 38000\n\tat a.B", OutageError),
        ("watersmeet.errors.SinkOutageError: batch 7 could not be written\n\tat a.B", SinkOutageError),
        ("x\nCaused by: software.amazon.awssdk.SdkClientException: Unable to execute HTTP request: y", OutageError),
        (f"Caused by: {KAFKA}.TopicAuthorizationException: not yours", WatersmeetError),
        (f"Caused by: {KAFKA}.RecordTooLargeException: 2 MB", WatersmeetError),
        ("watersmeet.errors.ConnectorError: no such table\n\tat a.B", ConnectorError),
        ("Caused by: java.net.ConnectException: Connection refused", WatersmeetError),
    ],
)
def test_an_outage_is_told_from_other_failures(text: str, kind: type[Exception]) -> None:
    error = translate(Exception(text), "q")
    assert type(error) is kind
    assert "SQLSTATE" not in str(error)
