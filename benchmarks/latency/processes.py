"""Processes that end with this one: engines, and the load."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent
_ENDS_SECONDS = 30.0
#: The same after Ctrl-C, which ends the broker at once: an engine would wait for it.
_STOPPED_SECONDS = 3.0
_DIES_SECONDS = 10.0


class Process:
    """A running process, whose standard input is a pipe from this one."""

    def __init__(self, name: str, running: subprocess.Popen[str], scratch: Path) -> None:
        self.name = name
        self._running = running
        self._scratch = scratch

    @property
    def id(self) -> int:
        """The number by which the system knows it."""
        return self._running.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._running.poll()

    @property
    def output(self) -> str:
        """Its standard output."""
        return (self._scratch / "output.txt").read_text()

    @property
    def errors(self) -> str:
        """Its standard error."""
        return (self._scratch / "errors.log").read_text(errors="replace")

    def keep_errors(self) -> Path:
        """Copy its standard error to a file that stays, and return that."""
        kept = Path(tempfile.gettempdir()) / f"{self._scratch.name}-{self.name}.log"
        shutil.copyfile(self._scratch / "errors.log", kept)
        return kept


@contextlib.contextmanager
def started(name: str, command: Sequence[str]) -> Iterator[Process]:
    """Run a command until the block ends; then its standard input ends, and it has half a minute to end too.

    Ctrl-C does not reach it.  Its temporary files are removed.
    """
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        with (folder / "errors.log").open("w") as errors, (folder / "output.txt").open("w") as output:
            running = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                text=True,
                cwd=_ROOT,
                env={**os.environ, "TMPDIR": scratch},
                start_new_session=True,
            )
        seconds = _STOPPED_SECONDS
        try:
            yield Process(name, running, folder)
            seconds = _ENDS_SECONDS
        finally:
            _end(running, seconds)


def _end(running: subprocess.Popen[str], seconds: float) -> None:
    """End a process and those that it started: by the end of its input, then by signals."""
    assert running.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        running.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(seconds)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, number)  # it leads a group of its own
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(_DIES_SECONDS)
