"""The epochs of a real-time query, and which files of its state count.

An epoch is one batch of Spark's real-time mode: Spark commits it when all its tasks have ended.  Before a task ends, it
writes its state as a file of its epoch and run.  The next epoch begins from the files of the last epoch that Spark has
committed; what was written for an epoch that did not commit is never read.

A run that ends before its epoch commits leaves files of that epoch, perhaps of some tasks only, and its tasks may
still be ending when the next run begins.  So each run has a number, noted with its first epoch before it starts.  From
that epoch on, only its own files count, until another run begins.

    CHECKPOINT/epochs/runs/RUN.json                   a run's first epoch, and where its sources began
    CHECKPOINT/epochs/inputs/INPUT/TASK/EPOCH-RUN.state       the positions of a task that reads a source
    CHECKPOINT/epochs/operators/NAME/BUCKET/EPOCH-RUN.state   the state of an operator's bucket
    CHECKPOINT/epochs/sink                            what a sink keeps (connectors/jdbc/void_rows.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from watersmeet.runtime.exchange import batch_id
from watersmeet.state.epoch_store import EpochStore

#: How many runs the headers of results name.  A consumer sees a repeat if more than that, one after the other, have
#: each committed an epoch and given its partition nothing.
_RUNS_NAMED = 8
#: Where a sink may keep files, beside those of the operators.
SINK_FOLDER = "sink"


class RunStart(BaseModel):
    """The content of a run's file.

    ``positions`` are where sources were first read from, by input alias and partition.  ``tasks`` are how many tasks
    share the partitions of each: positions are stored by task.  ``run`` is the run's number; files of earlier versions
    have none.
    """

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    first: int
    positions: dict[str, dict[int, int]] = {}
    tasks: dict[str, int] = {}
    run: int | None = None


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of one run, as its tasks need them.

    ``base`` is the run that committed the epoch before ``first``; None if there is none.
    """

    folder: str
    run: int
    first: int
    base: int | None

    @property
    def current(self) -> int:
        """The epoch of the task that asks."""
        return batch_id()

    def open(self, *what: str) -> EpochStore:
        """The store of a task's state, as the last committed epoch left it."""
        before = self.current - 1
        run = self.run if before >= self.first else self.base
        store = EpochStore("/".join((self.folder, *what)), None if run is None else file_name(before, run))
        store.remove_unused()
        return store

    def write(self, store: EpochStore) -> None:
        """Write what changed in this epoch; it counts once Spark commits the epoch."""
        store.write(file_name(self.current, self.run))


def next_run(starts: Sequence[RunStart], committed: int | None) -> tuple[int, int, int | None]:
    """The number of a new run, its first epoch, and the run that owns the epoch before.

    ``starts`` are those of all earlier runs, in order; ``committed`` is the last epoch that Spark has committed.
    """
    first = 0 if committed is None else committed + 1
    owners = [run for run, start in enumerate(starts) if start.first < first]
    return len(starts), first, owners[-1] if owners else None


def named_runs(starts: Sequence[RunStart]) -> dict[int, int]:
    """The first epochs of the newest runs, by number, for the headers of what the last of them gives.

    A run that has given nothing is known from its successors' headers alone.  Of runs that begin with the same epoch,
    the last one stands for all.
    """
    last = {start.first: run for run, start in enumerate(starts)}
    return {run: first for first, run in sorted(last.items())[-_RUNS_NAMED:]}


def file_name(epoch: int, run: int) -> str:
    """The name of a file of an epoch's state."""
    return f"{epoch:09}-{run:06}.state"
