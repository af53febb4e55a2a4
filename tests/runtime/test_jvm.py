from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, TCPServer
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

from watersmeet.session.jvm import _is_of_use, not_started, silence_end_of_jvm


@contextmanager
def restored_filters() -> Iterator[None]:
    """Take away the filters that loggers are given meanwhile."""
    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    before = [list(logger.filters) for logger in loggers]
    yield
    for logger, filters in zip(loggers, before, strict=True):
        logger.filters[:] = filters


def test_calls_interrupted_by_a_second_ctrl_c_are_not_logged() -> None:
    def record(path: str) -> logging.LogRecord:
        broken_off = (KeyboardInterrupt, KeyboardInterrupt(), None)
        return logging.LogRecord("root", logging.ERROR, path, 0, "while sending", None, broken_off)

    assert not _is_of_use(record("py4j/java_gateway.py"))
    assert _is_of_use(record("elsewhere.py"))


class Failing(BaseRequestHandler):
    error: Exception

    def handle(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "is_printed"), [(EOFError(), False), (ConnectionResetError(), False), (KeyError("k"), True)]
)
def test_the_end_of_spark_prints_no_stack_trace(
    error: Exception, is_printed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Failing, "error", error, raising=False)
    with TCPServer(("127.0.0.1", 0), Failing) as server:
        with restored_filters():
            silence_end_of_jvm(server)
        with socket.create_connection(server.socket.getsockname()):
            server.handle_request()
    assert ("Traceback" in capsys.readouterr().err) is is_printed


class JavaError(Py4JJavaError):  # type: ignore[misc]
    """What py4j raises for an exception of Spark's."""

    def __init__(self, message: str) -> None:
        self.java_exception = SimpleNamespace(getMessage=lambda: message)


def test_spark_s_own_reason_is_told_if_it_does_not_start() -> None:
    error = not_started(JavaError("requirement failed: spark.network.timeout is too short\n\tat Spark"))
    assert str(error).splitlines() == [
        "Spark did not start: requirement failed: spark.network.timeout is too short",
        "hint: is the master right, and does every setting in config have a value that Spark allows?",
    ]
    assert "Java 17" in str(not_started(RuntimeError("Java gateway process exited")))
