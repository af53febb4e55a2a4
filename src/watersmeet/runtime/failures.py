"""Spark's exceptions as Watersmeet's errors: one sentence instead of a stack trace."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger

from watersmeet import errors
from watersmeet.errors import (
    BindError,
    CheckpointError,
    ConnectorError,
    LostProcessError,
    OutageError,
    SinkOutageError,
    WatersmeetError,
)
from watersmeet.filesystems import in_words, is_unreachable, reason_of
from watersmeet.settings.secrets import hide

_log = logging.getLogger(__name__)
_KNOWN_ERROR = re.compile(r"watersmeet\.errors\.(\w+): (.*?)(?=\n\s*at |\n\n|\n SQLSTATE: |\Z)", re.DOTALL)
# py4j's first line names a call; what Java raised follows it
_CALL = re.compile(r"An error occurred while calling [\w.:$]+\n: ")
# ... or nothing, if the JVM ended meanwhile
_UNANSWERED_CALL = re.compile(r"An error occurred while calling [\w.:$]+")
_STREAM_FAILED = re.compile(
    r"\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: (.*?)(?: SQLSTATE: \w+)?(?=\n|\Z)"
)
# Spark describes the query behind what was raised; its plan has the texts of errors that may be raised.
_QUERY = re.compile(r"\n+=== Streaming Query ===\n.*?(?=\n\s+at |\nCaused by: |\n\nJVM stacktrace:|\Z)", re.DOTALL)
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (?=.)")
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+.*", re.DOTALL)
# What Spark says of a worker that dies while it works, before it has taken up a task (or cannot be forked), while
# results are read from it, and while rows are written to it.
_DEAD_WORKER = re.compile(
    r"(?:Python|driver) worker exited unexpectedly|Python daemon failed to launch worker|java\.io\.EOFException"
)
_BROKEN_PIPE = re.compile(
    r"(?:Exception: (?:Broken pipe|Connection reset|Stream closed)[^\n]*|java\.io\.EOFException)\n"
    r"(?:\s+at java\.base/[^\n]*\n)*"
    r"\s+at org\.apache\.spark\.(?:api|sql\.execution|sql\.execution\.datasources\.v2)\.python\."
)
# Spark's classes that read its part of a checkpoint, and what they raise where a file is not what was written. That
# state is missing has an error class of its own.
_LOG_READER = re.compile(
    r"at org\.apache\.spark\.sql\.execution\.streaming\.\w+\.(?:\w+\.)?"
    r"(?:HDFSMetadataLog|OffsetSeq|OffsetSeqLog|CommitLog|CommitMetadata|FileStreamSourceLog|CompactibleFileStreamLog"
    r"|StreamMetadata|OperatorStateMetadata\w*|StateSchemaCompatibilityChecker|StateStoreChangelogReader\w*"
    r"|RocksDBFileManager|RocksDBCheckpointMetadata)\b"
)
_UNREADABLE = re.compile(
    r"Incomplete log file|Log file was malformed|batch \d+ doesn't exist|com\.fasterxml\.jackson|org\.json4s"
    r"|EOFException|NumberFormatException|MalformedInput|ChecksumException|FileNotFoundException|NoSuchFileException"
    r"|ZipException|StreamCorrupted|UTFDataFormat|StringIndexOutOfBounds|Malformed|[Cc]orrupt"
)
_LOST_FILE = re.compile(
    r"\[(?:STREAMING_CHECKPOINT_MISSING_METADATA_FILE|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
    r"|CHECKPOINT_FILE_CHECKSUM_\w+"
    r"|CANNOT_LOAD_STATE_STORE\.(?:CANNOT_READ|INVALID|UNEXPECTED_FILE|SNAPSHOT)\w*)\b"
)
# What cannot be written was never stored.
_UNWRITTEN = "[STREAMING_CHECKPOINT_LOG_WRITE_FAILURE"
_ABSENT = re.compile(r"No such file or directory: s3a?://|\[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY\]")
_STORED_FILE = re.compile(r"(?:file:)?(/[^\s:'\"]+/spark(?:-\d+)?/[^\s:'\"]*[^\s:'\".])")
# What Java, Python, DuckDB and Delta say of a disk that takes nothing more, most with a path before it.
_DISK = re.compile(
    r"(?:(/[^\s:'\"()]+)[^\n/]{0,80})?(No space left on device|Read-only file system|Disk quota exceeded)"
)
# What Spark says if Hadoop cannot delete what an earlier attempt has left; Hadoop does not say why.
_NOT_EMPTIED = re.compile(r"Unable to clear output directory (?:file:)?(\S+) prior to writing")
_LOST_BLOCK = re.compile(r"(?:NoSuchFile|FileNotFound)Exception: (/\S*/blockmgr-[^\s:]+)")
_DISK_STATES = {
    "No space left on device": ("is full", "free some space"),
    "Read-only file system": ("is read-only", "make it writable again"),
    "Disk quota exceeded": ("holds all that the user may store", "free some space, or raise the quota"),
}
# Hadoop runs `chmod` for files.  Java may give it the exit code of a process that Spark has ended with SIGTERM:
# docs/design/2026-11-29-exit-codes-of-other-processes.md.
_ENDED_COMMAND = re.compile(r"\bExitCodeException exitCode=143\b")
_LOST_EXECUTOR = re.compile(r"ExecutorLostFailure|Remote RPC client disassociated|executor \S+ exited|SlaveLost")
# What Kafka's Java client raises where no broker answers, or where the one that leads a partition is not there.
_KAFKA_UNREACHABLE = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network|NotEnoughReplicas\w*|NotLeaderOrFollower"
    r"|LeaderNotAvailable|BrokerNotAvailable|ReplicaNotAvailable|Coordinator\w+|KafkaStorage)Exception"
)
_KAFKA_WRITERS = re.compile(r"org\.apache\.spark\.sql\.kafka010\.Kafka\w*Writ")
_RESUME = "its checkpoint is kept, so the query can be resumed"
_NO_ANSWER = "Spark's JVM does not answer"


@contextmanager
def planning(name: str) -> Iterator[None]:
    """Turn what Spark raises while a query is built and started into Watersmeet's errors."""
    try:
        with without_stacks():
            yield
    except AnalysisException as error:
        raise BindError(f"the query cannot be planned: {first_sentence(error)}") from None
    except (PySparkException, Py4JError) as error:  # py4j's where a Python data source is opened
        raise translate(error, name) from None


@contextmanager
def naming_lost_jvm() -> Iterator[None]:
    """Say that Spark has ended where a statement finds that it has."""
    try:
        yield
    except (ConnectionError, Py4JError) as error:
        if not _is_end_of_jvm(error, text_of(error)):
            raise
        raise LostProcessError(
            "Spark's JVM has ended, and this session with it",
            hint="run the program again: checkpoints are kept, and queries go on where they stopped",
        ) from None


@contextmanager
def without_stacks() -> Iterator[None]:
    """Keep PySpark from logging the exceptions that it raises, which have Java's full stack."""
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def first_sentence(error: PySparkException) -> str:
    """Spark's message without its error class, its codes and its context."""
    return _ERROR_CLASS.sub("", text_of(error).strip())


def translate(error: BaseException, name: str) -> WatersmeetError:
    """Turn a failure of the query ``name`` into one of our errors: the one that a worker raised, if any."""
    text = hide(raised(error))
    _log.debug("query %s failed: %s", name, text)
    if "CONCURRENT_STREAM_LOG_UPDATE" in text:
        return CheckpointError(
            f"query {name} was stopped: another run uses its checkpoint",
            hint="let one of them continue; two jobs need checkpoints of their own. If this is the only one, a file of "
            "its checkpoint is missing: restore it from a copy",
        )
    if (known := known_error(text)) is not None:
        return known
    if (full := disk_failure(text) or _not_emptied(text)) is not None:
        what, then = full
        return ConnectorError(
            f"query {name} failed: {what}",
            hint=f"{then} and run it again: it goes on where it stopped, and nothing is lost",
        )
    if kafka_is_unreachable(text) or is_unreachable(text):
        kind = SinkOutageError if _KAFKA_WRITERS.search(text) else OutageError
        waits_for = f"a file system: {reason_of(text)}" if is_unreachable(text) and reason_of(text) else ""
        hint = _RESUME[0].upper() + _RESUME[1:]
        return kind(f"query {name} failed: {in_words(cause_of(text))}", hint=hint, waits_for=waits_for)
    if _is_end_of_jvm(error, text):
        return LostProcessError(
            f"query {name} ended: Spark's JVM has ended",
            hint="did it run out of memory? Then set spark.driver.memory in spark-defaults.conf, in the folder that "
            f"SPARK_CONF_DIR names. {_RESUME[0].upper()}{_RESUME[1:]}",
        )
    if is_of_ended_command(error):
        return LostProcessError(
            f"query {name} failed: a command that Hadoop runs for files (chmod) ended with 143 (SIGTERM)",
            hint=f"run it again; {_RESUME}",
        )
    if is_of_damage(whole := _raised_with_stack(error)):
        return CheckpointError(
            f"query {name} stopped: Spark's part of its checkpoint is damaged",
            detail=damage_of(text, whole),
            hint="restore the checkpoint from a copy, or start on a new one (its state begins empty); "
            "failure.log holds Spark's text",
        )
    if _DEAD_WORKER.search(text) or _BROKEN_PIPE.search(whole):
        return LostProcessError(
            f"query {name} failed: a Python worker died, perhaps because memory ran out",
            hint="read smaller batches (such as max_files_per_trigger), set SETTINGS worker_memory = '1GB', or use "
            f"fewer cores; {_RESUME}, and failure.log holds Spark's text",
        )
    if _LOST_EXECUTOR.search(text):
        return LostProcessError(
            f"query {name} failed: an executor was lost", hint=f"failure.log tells which; {_RESUME}"
        )
    if (lost := _LOST_BLOCK.search(text)) is not None:
        return WatersmeetError(
            f"query {name} failed: a file that Spark kept for the moment is gone: {lost[1]}",
            hint="was the folder for temporary files emptied? Run it again: it goes on where it stopped",
        )
    return WatersmeetError(
        f"query {name} failed: {cause_of(text)}",
        hint="its checkpoint is kept, with failure.log; once the cause is fixed, the query can be resumed",
    )


def is_of_damage(text: str) -> bool:
    """Whether Spark's text, with its stack, says that it cannot read what it has stored in a checkpoint."""
    if _UNWRITTEN in text:
        return False
    raised = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("at "))
    return _LOST_FILE.search(text) is not None or (
        _LOG_READER.search(text) is not None and _UNREADABLE.search(raised) is not None
    )


def damage_of(text: str, whole: str) -> str:
    """The file that is damaged, where Spark's text names it, and what is wrong with it."""
    found = _STORED_FILE.search(whole)
    cause = re.sub(r"\s*\(for Object starting at.*|\s*SQLSTATE: .*", "", cause_of(text))
    if cause == "java.io.EOFException":
        cause = "a file ends too early"
    return f"{found[1]}: {cause}" if found and found[1] not in cause else cause


def is_of_this_machine(error: BaseException) -> bool:
    """Whether a process of Spark has ended or a disk takes nothing more, so that no other system has part in it."""
    text = raised(error)
    return (
        _is_end_of_jvm(error, text)
        or any(pattern.search(text) for pattern in (_DEAD_WORKER, _LOST_EXECUTOR, _DISK))
        or _BROKEN_PIPE.search(_raised_with_stack(error)) is not None
    )


def is_of_ended_command(error: BaseException) -> bool:
    """Whether a command that Hadoop ran for a file was reported as ended by SIGTERM; the next may do."""
    return _ENDED_COMMAND.search(_raised_with_stack(error)) is not None


def is_of_absence(error: BaseException) -> bool:
    """Whether an object store said that a file of a checkpoint is not there, or any place that the state is not.

    It may have been an answer cut short: a list whose answer ends amid its headers reads as an empty one.
    """
    return _ABSENT.search(text := _raised_with_stack(error)) is not None and is_of_damage(text)


def disk_failure(text: str) -> tuple[str, str] | None:
    """What is wrong with a disk, and what to do, if that is what an error's text says."""
    found = _DISK.search(text)
    if found is None:
        return None
    state, then = _DISK_STATES[found[2]]
    return f"the disk {f'of {found[1]} ' if found[1] else ''}{state} ({found[2]})", then


def _not_emptied(text: str) -> tuple[str, str] | None:
    """What is wrong with a folder of results, and what to do, if it could not be emptied."""
    found = _NOT_EMPTIED.search(text)
    if found is None:
        return None
    left = f"{found[1]}, which an earlier attempt has left,"
    return f"{left} cannot be deleted: its disk is read-only, or it belongs to another user", "make it writable"


def text_of(error: BaseException) -> str:
    """The text of an error; or that the JVM does not answer, which PySpark asks how much of some texts to show."""
    try:
        return str(error)
    except (ConnectionError, Py4JError):
        return _NO_ANSWER


def raised(error: BaseException) -> str:
    """The text of an error, without the query that Spark describes in it."""
    return _QUERY.sub("", text_of(error))


def _raised_with_stack(error: BaseException) -> str:
    stack = _QUERY.sub("", getattr(error, "_stackTrace", None) or "")
    return f"{raised(error)}\n\n{stack}"


def whole_text(error: BaseException) -> str:
    """The text of an error, with Java's stack, which PySpark keeps beside it."""
    text, stack = text_of(error), getattr(error, "_stackTrace", None) or ""
    return text if not stack or stack in text else f"{text}\n\n{stack}"


def kafka_is_unreachable(text: str) -> bool:
    """Whether Spark's text says that Kafka's Java client reached no broker."""
    return _KAFKA_UNREACHABLE.search(text) is not None


def known_error(text: str) -> WatersmeetError | None:
    """Our error that a worker raised, parsed from Spark's text; None if there is none."""
    found = _KNOWN_ERROR.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], WatersmeetError)
    message, *more = found[2].strip().splitlines()
    detail = "\n".join(line for line in more if not line.startswith("hint: ")) or None
    hint = next((line.removeprefix("hint: ") for line in more if line.startswith("hint: ")), None)
    translated: WatersmeetError = kind(message, detail=detail, hint=hint)
    return translated


def _is_end_of_jvm(error: BaseException, text: str) -> bool:
    if isinstance(error, ConnectionError | Py4JNetworkError) or text == _NO_ANSWER:
        return True
    return isinstance(error, Py4JError) and _UNANSWERED_CALL.fullmatch(text.strip()) is not None


def cause_of(text: str) -> str:
    """The most informative line of a stack: Python's last error, else the innermost cause, else the first line."""
    text = _CALL.sub("Caused by: ", _STREAM_FAILED.sub(r"\1", text))
    python = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception): .+)$", text, re.MULTILINE)
    inner = re.findall(r"Caused by: (.*)", text)
    lines = [line for line in text.strip().splitlines() if line.strip()] or ["no reason was given"]
    found = next((lines_[-1] for lines_ in (python, inner) if lines_), lines[0])
    return _JAVA_CLASS.sub("", found.strip())
