"""Results of a query in real time, collected for a test: each write of a task is a small Arrow file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from watersmeet.runtime.exchange import batch_id
from watersmeet.runtime.real_time.operator_task import EPOCH
from watersmeet.runtime.real_time.sinks import ByTasks, RunName


class LiveResults:
    """A folder with the results of all runs of a query."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._firsts: dict[int, int] = {}  # the first epochs of runs, by number
        self._next_epoch = 0

    def writer(self, run: RunName) -> ByTasks:
        """What writes a run's results into the folder."""
        self._firsts.update(run.firsts)
        return ByTasks(_Writer(str(self._folder), run.run))

    def take(self, last: int) -> list[pa.Table]:
        """Return the results of the epochs that follow those taken before, up to ``last``, which has been committed.

        Those of a task are in the order in which it wrote them.
        """
        found = []
        for path in sorted(self._folder.glob("*.arrow")):
            epoch, run, _, _ = map(int, path.stem.split("-"))
            if self._next_epoch <= epoch <= last and run == self._owner(epoch):
                found.append(pa.ipc.open_file(path).read_all())
        self._next_epoch = max(self._next_epoch, last + 1)
        return found

    def _owner(self, epoch: int) -> int:
        """The run whose results of an epoch count: a run repeats what earlier ones gave from its first epoch on."""
        return max(run for run, first in self._firsts.items() if first <= epoch)


@dataclass(slots=True)
class _Writer:
    """Writes what one task gives."""

    folder: str
    run: int
    written: int = 0

    def __call__(self, rows: pa.Table) -> None:
        rows = rows.drop_columns([EPOCH])
        context = TaskContext.get()
        assert context is not None
        name = f"{batch_id():09}-{self.run:06}-{context.partitionId():03}-{self.written:06}"
        hidden = Path(self.folder, f".{name}")
        with pa.ipc.new_file(hidden, rows.schema) as writer:
            writer.write_table(rows)
        hidden.rename(Path(self.folder, f"{name}.arrow"))
        self.written += 1
