"""What Spark raises, as errors of ours: one sentence in place of a stack."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger

from watersmeet import errors
from watersmeet.errors import BindError, CheckpointError, WatersmeetError
from watersmeet.settings.secrets import hide

_log = logging.getLogger(__name__)
_KNOWN_ERROR = re.compile(r"watersmeet\.errors\.(\w+): (.*?)(?=\n\s*at |\n\n|\Z)", re.DOTALL)
# py4j's first line names a call; what Java raised follows it
_CALL = re.compile(r"An error occurred while calling [\w.:$]+\n: ")
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (?=.)")
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+.*", re.DOTALL)


@contextmanager
def planning(name: str) -> Iterator[None]:
    """What Spark raises while a query is built and started, as one of our errors."""
    try:
        with without_stacks():
            yield
    except AnalysisException as error:
        raise BindError(f"the query cannot be planned: {first_sentence(error)}") from None
    except PySparkException as error:
        raise translate(error, name) from None


@contextmanager
def without_stacks() -> Iterator[None]:
    """Keep PySpark from logging what it raises, with Java's whole stack."""
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
    """What Spark says of an error, without its class, its codes and where it was."""
    return _ERROR_CLASS.sub("", str(error).strip())


def translate(error: BaseException, name: str) -> WatersmeetError:
    """A failure of Spark as one of our errors: ours, where a worker raised it, else its first line."""
    text = hide(str(error))
    _log.debug("query %s failed: %s", name, text)
    if "CONCURRENT_STREAM_LOG_UPDATE" in text:
        return CheckpointError(
            f"query {name} was stopped: another run uses its checkpoint",
            hint="let one of them go on; two jobs need checkpoints of their own",
        )
    if (known := known_error(text)) is not None:
        return known
    return WatersmeetError(
        f"query {name} failed: {_cause(text)}",
        hint="its checkpoint is kept, with failure.log; once the cause is mended the query can be resumed",
    )


def known_error(text: str) -> WatersmeetError | None:
    """The error of ours that a worker raised, from the text of Spark's; None where there is none in it."""
    found = _KNOWN_ERROR.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], WatersmeetError)
    message, *more = found[2].strip().splitlines()
    detail = "\n".join(line for line in more if not line.startswith("hint: ")) or None
    hint = next((line.removeprefix("hint: ") for line in more if line.startswith("hint: ")), None)
    translated: WatersmeetError = kind(message, detail=detail, hint=hint)
    return translated


def _cause(text: str) -> str:
    """What the line of a stack says that says most: Python's last error, else the innermost cause, else the first."""
    text = _CALL.sub("Caused by: ", text)
    python = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception): .+)$", text, re.MULTILINE)
    inner = re.findall(r"Caused by: (.*)", text)
    lines = [line for line in text.strip().splitlines() if line.strip()] or ["no reason was given"]
    found = next((lines_[-1] for lines_ in (python, inner) if lines_), lines[0])
    return _JAVA_CLASS.sub("", found.strip())
