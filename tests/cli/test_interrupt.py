from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from watersmeet.cli.interrupt import ending_at_once, interruptible

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
