"""What Spark raises, in one sentence."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import StreamingQueryException

from watersmeet import Session
from watersmeet.errors import (
    CheckpointError,
    ConnectorError,
    LostProcessError,
    OutageError,
    SinkOutageError,
    WatersmeetError,
)
from watersmeet.runtime.failures import naming_lost_jvm, planning, translate


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


def test_what_a_plan_says_was_not_raised() -> None:
    """A query may raise errors by itself; Spark shows its plan, with their texts, in whatever ends it."""
    plan = (
        "\n\n=== Streaming Query ===\nIdentifier: q\nCurrent State: ACTIVE\n\nLogical Plan:\n~Project [CASE WHEN"
        " isnull(k) THEN raise_error(watersmeet.errors.ConnectorError: column k is NULL\nhint: leave it out) END]\n"
        "+- Filter a = 'No space left on device'"
    )
    died = "Query failed: Python worker exited unexpectedly (crashed).\n\tat a.B.c(B.java:1)\nCaused by: a.EOFException"
    for text in (f"{died}{plan}", f"{died}{plan}\n\nJVM stacktrace:\na.B\n\tat a.B.c(B.java:1)"):
        assert isinstance(translate(Exception(text), "q"), LostProcessError)
    said = "Query failed: watersmeet.errors.ConnectorError: column k is NULL\nhint: leave it out\n\tat a.B.c(B.java:1)"
    assert isinstance(translate(Exception(f"{said}{plan}"), "q"), ConnectorError)


@pytest.mark.parametrize(
    "text",
    [
        "Task 1 failed 4 times: a.b.SparkException: Python worker exited unexpectedly (crashed).\n\tat a.B",
        "Task 0 failed 4 times: a.b.SparkException: Python daemon failed to launch worker.\n\tat a.B",
        "Caused by: java.io.IOException: Broken pipe\n\tat java.base/a.B(B)\n\tat org.apache.spark.api.python.C(C)",
        "Job aborted.\nCaused by: java.io.EOFException\n\tat java.io.DataInputStream.readInt(DataInputStream.java)",
        "terminated with exception: TransformWithStateInPySpark driver worker exited unexpectedly (crashed)",
        "x\n: java.io.IOException: Stream closed\n\tat java.base/a.B(B)\n\tat org.apache.spark.api.python.C",
        "IOException: Broken pipe\n\tat java.base/B\n\tat org.apache.spark.sql.execution.datasources.v2.python.C",
    ],
)
def test_a_dead_worker_is_named(text: str) -> None:
    error = translate(Exception(text), "q")
    assert error.message == "query q failed: a Python worker died, perhaps because memory ran out"
    assert "SETTINGS worker_memory" in str(error.hint)


def test_a_dead_worker_is_named_where_only_the_stack_tells_it() -> None:
    error = streaming_error(
        "Broken pipe", "java.io.IOException: Broken pipe\n\tat java.base/a.B(B)\n\tat org.apache.spark.api.python.C(C)"
    )
    assert isinstance(translate(error, "q"), LostProcessError)
    ended = "java.io.EOFException\n\tat java.base/a.B(B)\n\tat org.apache.spark.sql.execution.python.streaming.C(C)"
    assert isinstance(translate(streaming_error("", ended), "q"), LostProcessError)
    elsewhere = streaming_error("Broken pipe", "java.io.IOException: Broken pipe\n\tat org.postgresql.C(C)")
    assert translate(elsewhere, "q").message == "query q failed: Broken pipe"


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


class Unreadable(StreamingQueryException):
    """As PySpark's own where the JVM has ended meanwhile: it asks the JVM for its text."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_error_whose_text_is_in_a_jvm_that_has_ended_names_its_end() -> None:
    assert translate(Unreadable("text"), "q").message == "query q ended: Spark's JVM has ended"
    with pytest.raises(LostProcessError, match="query q ended"), planning("q"):
        raise Unreadable("text")


def streaming_error(cause: str, stack: str) -> Exception:
    """As PySpark raises it where a query has failed in the driver's JVM: the stack stands beside the text."""
    error = Exception(
        f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {cause} SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: q [id = 1, runId = 2]"
    )
    error._stackTrace = stack  # type: ignore[attr-defined]
    return error


def test_what_a_stream_has_failed_by_stands_alone() -> None:
    error = streaming_error("the well is dry", "")
    assert translate(error, "q").message == "query q failed: the well is dry"


def test_a_data_source_that_loses_its_worker_is_no_bare_exception() -> None:
    with pytest.raises(LostProcessError, match="query q failed: a Python worker died"), planning("q"):
        raise Py4JError(
            "An error occurred while calling o7.load.\n: java.io.IOException: Stream closed\n\tat java.base/a.B(B)\n"
            "\tat org.apache.spark.api.python.C(C)"
        )


def test_a_statement_that_finds_no_jvm_says_so() -> None:
    with pytest.raises(LostProcessError, match="JVM has ended, and this session with it") as raised, naming_lost_jvm():
        raise ConnectionRefusedError(111, "Connection refused")
    assert "queries go on where they stopped" in str(raised.value.hint)
    with pytest.raises(Py4JError, match="calling"), naming_lost_jvm():
        raise Py4JError("An error occurred while calling o7.load.\n: a.b.CException: x")


def test_a_session_whose_jvm_has_ended_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Session, "_start", refused)
    with pytest.raises(LostProcessError, match="JVM has ended"):
        Session.__new__(Session).sql("INSERT INTO a SELECT id FROM b")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "terminated with exception: /w/spark/sources/0/9.compact (Read-only file system) SQLSTATE: XXKST",
            "the disk of /w/spark/sources/0/9.compact is read-only (Read-only file system)",
            "make it writable again",
        ),
        ("Caused by: java.io.IOException: No space left on device\n", "the disk is full (No space", "free some space"),
        (
            "Traceback\nOSError: [Errno 28] No space left on device: '/tmp/x'",
            "the disk is full (No space left on device)",
            "free some space",
        ),
        (
            "java.nio.file.FileSystemException: /tmp/x/y: No space left on device",
            "the disk of /tmp/x/y is full",
            "free some space",
        ),
        (
            "IO Error: Could not write to /d/x: Disk quota exceeded",
            "the disk of /d/x holds all",
            "free some space, or raise the quota",
        ),
        (
            "Unable to clear output directory file:/out/_staging-q-1 prior to writing to it.",
            "/out/_staging-q-1, which an earlier attempt has left, cannot be deleted: its disk is read-only, or",
            "make it writable",
        ),
    ],
)
def test_a_disk_that_takes_nothing_is_named(text: str, message: str, hint: str) -> None:
    error = translate(Exception(text), "q")
    assert type(error) is ConnectorError
    assert error.message.startswith(f"query q failed: {message}")
    assert str(error.hint).startswith(hint)
    assert str(error.hint).endswith("it goes on where it stopped, and nothing is lost")


CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"


@pytest.mark.parametrize(
    ("cause", "stack", "detail"),
    [
        (
            "batch 7 doesn't exist",
            f"java.lang.IllegalStateException: batch 7 doesn't exist\n\tat {CHECKPOINTING}.HDFSMetadataLog$.x(H.scala)",
            "batch 7 doesn't exist",
        ),
        (
            "Failed to read log file file:/c/spark/offsets/3. Incomplete log file",
            f"java.lang.IllegalStateException: Incomplete log file\n\tat {CHECKPOINTING}.OffsetSeqLog.x(O.scala:64)",
            "Failed to read log file file:/c/spark/offsets/3. Incomplete log file",
        ),
        (
            "Unexpected end-of-input",
            f"com.fasterxml.jackson.core.io.JsonEOFException: x\n\tat {CHECKPOINTING}.CommitMetadata$.a(C.scala:172)",
            "Unexpected end-of-input",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] The file 3.changelog does not exist.",
            "",
            "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] The file 3.changelog does not exist.",
        ),
        (
            "[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location file:/c/spark is inconsistent.",
            "",
            "[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location file:/c/spark is inconsistent.",
        ),
        (
            "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query",
            "",
            "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query",
        ),
        (
            "java.io.EOFException",
            f"java.io.EOFException\n\tat {CHECKPOINTING}.StateStoreChangelogReaderV2.x(S.scala)",
            "a file ends too early",
        ),
    ],
)
def test_damage_to_what_spark_keeps_of_a_checkpoint_is_named(cause: str, stack: str, detail: str) -> None:
    error = translate(streaming_error(cause, stack), "q")
    assert isinstance(error, CheckpointError)
    assert error.message == "query q stopped: Spark's part of its checkpoint is damaged"
    assert error.detail == detail
    assert "restore the checkpoint from a copy" in str(error.hint)


def test_a_store_that_is_away_while_a_checkpoint_is_read_is_no_damaged_one() -> None:
    text = (
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_CHECKPOINT] x\nCaused by: software.amazon.awssdk.SdkClientException: "
        f"Unable to execute HTTP request: y\n\tat {CHECKPOINTING}.OffsetSeqLog.x(O.scala)\njava.io.EOFException: z"
    )
    assert isinstance(translate(Exception(text), "q"), OutageError)


@pytest.mark.parametrize(
    "cause",
    [
        "Premature end of Content-Length delimited message body (expected: 854; received: 0)",
        "Server error accessing s3://lake/spark/sources/1/27, request failed with: (Service: S3, Status Code: 503, x)",
        "Generic S3 error: end of file before message length reached",
    ],
)
def test_an_answer_of_a_store_that_is_broken_off_is_an_outage(cause: str) -> None:
    stack = f"org.apache.http.ConnectionClosedException: {cause}\n\tat {CHECKPOINTING}.HDFSMetadataLog.x(H.scala)"
    assert isinstance(translate(streaming_error(cause, f"{stack}\njava.io.EOFException: x"), "q"), OutageError)


def test_a_full_disk_is_no_damaged_checkpoint() -> None:
    reader = f"\tat {CHECKPOINTING}.HDFSMetadataLog.write(H.scala)\n\tat org.json4s.x(J.scala)"
    error = translate(streaming_error("No space left on device", f"java.io.FileNotFoundException: x\n{reader}"), "q")
    assert error.message == "query q failed: the disk is full (No space left on device)"
    error = translate(streaming_error("the well is dry", f"a.b.CException: the well is dry\n{reader}"), "q")
    assert error.message == "query q failed: the well is dry"


def test_what_could_not_be_written_is_no_damaged_checkpoint() -> None:
    cause = "[STREAMING_CHECKPOINT_LOG_WRITE_FAILURE.OFFSET_LOG] Failed to write offset log entry for batch 1"
    reader = f"java.io.FileNotFoundException: x\n\tat {CHECKPOINTING}.HDFSMetadataLog.write(H.scala)"
    assert type(translate(streaming_error(cause, reader), "q")) is WatersmeetError


def test_json_that_cannot_be_read_elsewhere_is_no_damaged_checkpoint() -> None:
    error = streaming_error("Unexpected character", "com.fasterxml.jackson.core.JsonParseException: x\n\tat a.B(B)")
    assert type(translate(error, "q")) is WatersmeetError


def test_a_temporary_file_of_spark_that_is_gone_is_named() -> None:
    text = "x\nCaused by: java.nio.file.NoSuchFileException: /tmp/s/blockmgr-1/0f/shuffle_18_163_0.index\n"
    error = translate(Exception(text), "q")
    assert error.message.endswith("kept for the moment is gone: /tmp/s/blockmgr-1/0f/shuffle_18_163_0.index")
    assert str(error.hint).endswith("Run it again: it goes on where it stopped")


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
