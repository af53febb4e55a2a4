"""Runs a job in a process of its own, and again after failures that may pass: ``run --restart-on-failure``.

A process of its own, because a job can end in ways that its process does not survive, and because a new JVM needs a new
process: PySpark starts one only once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import typer

from watersmeet.cli.interrupt import Interrupt, interruptible
from watersmeet.cli.restarts import Ending, Restarts
from watersmeet.cli.supervised import VARIABLE, Watch

_LOOK_SECONDS = 0.1
_MAIN = "import sys; sys.argv[0] = 'watersmeet'; from watersmeet.cli.main import main; main()"


def supervise(words: Sequence[str], script: str | None, most: int) -> int:
    """Run ``watersmeet`` with these arguments until it succeeds, fails for good or is stopped; return the exit code.

    ``script`` is what the job reads from standard input (None: nothing).
    """
    restarts = Restarts(most)
    with interruptible() as interrupt:
        while True:
            ending = _run([sys.executable, "-c", _MAIN, *words], script, most, interrupt)
            if ending.code == 0:
                return 0
            if interrupt.asked:
                return interrupt.exit_code
            pause = restarts.pause_after(ending)
            if pause is None:
                _say(f"not started again: {restarts.why_not(ending)}")
                return ending.code if ending.code > 0 else 128 - ending.code
            number = f"{restarts.in_a_row} of {most} in a row"
            _say(f"restart {number}, in {pause:.0f} s, because the job has failed: {ending.reason}")
            if _is_stopped_within(pause, interrupt):
                return interrupt.exit_code


def _run(command: Sequence[str], script: str | None, most: int, interrupt: Interrupt) -> Ending:
    """Run the job once, and hand a signal on to it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="watersmeet-run-") as folder:
        report = Path(folder, "report.json")
        lifeline, other_end = os.pipe()
        try:
            job = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if script is None else subprocess.PIPE,
                env={**os.environ, VARIABLE: Watch(str(report), lifeline, most).to_json()},
                pass_fds=(lifeline,),
                start_new_session=True,  # a terminal's Ctrl-C comes from here alone, once
            )
            os.close(lifeline)
            if script is not None and job.stdin is not None:
                with suppress(BrokenPipeError), job.stdin:
                    job.stdin.write(script.encode())
            code = _wait(job, interrupt)
        finally:
            os.close(other_end)
        said = json.loads(report.read_text()) if report.exists() else {}
    return Ending(code, time.monotonic() - began, **said)


def _wait(job: subprocess.Popen[bytes], interrupt: Interrupt) -> int:
    """Wait for the end of the job.  The first signal stops it, as does the second one, without waiting for queries."""
    is_told = False
    while True:
        try:
            if (code := job.poll()) is not None:
                return code
            if interrupt.asked and not is_told:
                is_told = True
                job.send_signal(interrupt.signal_number)
            time.sleep(_LOOK_SECONDS)
        except KeyboardInterrupt:
            job.send_signal(signal.SIGINT)
            job.wait()
            raise


def _is_stopped_within(seconds: float, interrupt: Interrupt) -> bool:
    until = time.monotonic() + seconds
    while not interrupt.asked and time.monotonic() < until:
        time.sleep(min(_LOOK_SECONDS, seconds))
    return interrupt.asked


def _say(text: str) -> None:
    typer.echo(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {text}", err=True)
