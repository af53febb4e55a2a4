"""Measures what a Spark application takes: the JVM, and all its Python processes together (Linux only)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

#: Sampling eight gigabytes takes a quarter of a second of a core.  Sampling uses at most a twentieth of a core, …
_REST = 20
_MIN_SECONDS = 0.5
#: … unless that would leave more than this between two samples.
_MAX_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The memory of the processes below one, as proportional set sizes (PSS) in bytes.

    ``largest_worker``: the most that one of the Python processes has had resident, shared pages included.
    """

    jvm: int
    workers: int
    largest_worker: int

    @classmethod
    def of(cls, root: int) -> Usage:
        """Measure it now, without that of the process itself."""
        found = Processes.below(root)
        return cls(
            jvm=sum(map(_pss, found.jvm)),
            workers=sum(map(_pss, found.python)),
            largest_worker=max((_bytes_of(pid, "status", "VmHWM:") for pid in found.python), default=0),
        )


class Peak:
    """Samples the descendants of this process while its block runs; figures are proportional set sizes (PSS) in bytes.

    It takes a sample twice a second, less often if a sample takes long, and one more when the block ends.
    """

    def __init__(self) -> None:
        self.jvm = 0
        self.workers = 0
        self.largest_worker = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(self._look()):
            pass
        self._look()

    def _look(self) -> float:
        """Update the peaks; return the seconds to wait before the next sample."""
        began = time.thread_time()
        usage = Usage.of(os.getpid())
        self.jvm, self.workers = max(self.jvm, usage.jvm), max(self.workers, usage.workers)
        self.largest_worker = max(self.largest_worker, usage.largest_worker)
        return min(max(_REST * (time.thread_time() - began), _MIN_SECONDS), _MAX_SECONDS)


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of a Spark application: its JVM, and Python's workers with those that fork them."""

    jvm: list[int]
    python: list[int]

    @classmethod
    def below(cls, root: int) -> Processes:
        """Return those that descend from a process."""
        commands = _below(root)
        # watersmeet-python: runtime/worker_python.py
        python = [pid for pid, command in commands.items() if command.startswith(("python", "watersmeet"))]
        return cls([pid for pid, command in commands.items() if command == "java"], python)


def resident(pid: int) -> int:
    """Return the bytes that a process has resident now, shared pages included; 0 if it has ended."""
    return _bytes_of(pid, "status", "VmRSS:")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU seconds that processes have used, with those of their children that have ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def open_files(pid: int) -> int:
    """Return how many descriptors a process has open; 0 if it has ended."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def _below(root: int) -> dict[int, str]:
    """Return the descendants of a process by id, with the names of their programs."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        pid = int(path.parent.name)
        parents[pid], names[pid] = int(rest.split()[1]), head.partition("(")[2]
    found: dict[int, str] = {}
    newest = {root}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest}
        found |= {pid: names[pid] for pid in newest}
    return found


def _pss(pid: int) -> int:
    return _bytes_of(pid, "smaps_rollup", "Pss:")


def _bytes_of(pid: int, file: str, name: str) -> int:
    try:
        text = Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(name)), 0)
