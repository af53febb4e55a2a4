"""The machines of a simulated cluster, and the Python processes on them, which keep working sets between tasks."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from functools import cache
from pathlib import Path

from tests.simulation.decisions import Decisions
from watersmeet.state.working_sets import IDLE_SECONDS, WorkingSets


class Machine:
    """A disk that the workers of one machine share; whatever is on it may be gone or torn at any time."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="watersmeet-machine-"))
        # also where the query is refused, so that nobody ends its simulation
        self.remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def damage(self, decisions: Decisions) -> None:
        """Delete a file, or leave only its beginning."""
        files = sorted(path for path in self.folder.rglob("*.arrow") if path.is_file())
        if not files:
            return
        path = decisions.one_of(files)
        if decisions.happens(0.5):
            decisions.note("  a local copy is gone")
            path.unlink()
            return
        decisions.note("  a local copy is torn")
        whole = path.read_bytes()
        torn = path.with_suffix(".torn")  # a process may have mapped the file: it keeps what it has
        torn.write_bytes(whole[: decisions.number(0, len(whole) - 1)])
        torn.replace(path)


class Worker:
    """A Python process; it runs one task at a time."""

    def __init__(self, number: int, machine: Machine, keyed_bytes: int) -> None:
        self.name = f"worker {number}"
        self.machine = machine
        self.sets = _working_sets(number, keyed_bytes)
        self.is_free = True
        self._deaths = 0
        self.die()

    @property
    def process(self) -> str:
        """Which of its processes in turn this is."""
        return f"{self.name}, after {self._deaths} deaths"

    def die(self) -> None:
        """Lose everything in memory; another process takes its place."""
        self.sets.forget()
        self._deaths += 1


@cache
def _working_sets(number: int, keyed_bytes: int) -> WorkingSets:
    """The working sets of a process: all simulations use the same ones in turn, as to open a DuckDB takes long."""
    return WorkingSets(keyed_bytes=keyed_bytes, idle_seconds=IDLE_SECONDS)
