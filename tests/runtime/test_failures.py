"""What Spark raises, in one sentence."""

from __future__ import annotations

import pytest

from watersmeet.errors import CheckpointError, ConnectorError
from watersmeet.runtime.failures import translate


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_a_failure_is_told_by_the_line_that_says_most(text: str, told: str) -> None:
    assert translate(Exception(text), "q").message == f"query q failed: {told}"


def test_an_error_of_ours_comes_back_as_it_was_raised() -> None:
    text = "Traceback\nwatersmeet.errors.ConnectorError: 3 rows do not fit\nin file a\nhint: mend it\n\tat a.B(B.java)"
    error = translate(Exception(text), "q")
    assert isinstance(error, ConnectorError)
    assert (error.message, error.detail, error.hint) == ("3 rows do not fit", "in file a", "mend it")
    other = translate(Exception("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update"), "q")
    assert isinstance(other, CheckpointError)
