from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from socketserver import BaseRequestHandler, TCPServer

import pytest

from watersmeet.cli.interrupt import ending_at_once, interruptible
from watersmeet.cli.spark import _is_of_use, _keep_back_traces

STARTING = """
import os, signal
from watersmeet.cli.interrupt import ending_at_once
with ending_at_once():
    try:
        os.kill(os.getpid(), signal.{})
        signal.pause()
    finally:
        print("what the start of Spark takes away when it is broken off")
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_during_the_start_of_spark_ends_the_process_at_once(name: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", STARTING.format(name)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", "")


def test_handlers_are_restored_after_the_start() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ending_at_once():
        assert signal.getsignal(signal.SIGINT) is not before
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark does it
    assert signal.getsignal(signal.SIGINT) is before


def test_the_first_ctrl_c_requests_a_stop_and_the_second_interrupts() -> None:
    with interruptible() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


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
        _keep_back_traces(server)
        with socket.create_connection(server.socket.getsockname()):
            server.handle_request()
    assert ("Traceback" in capsys.readouterr().err) is is_printed
