"""The runs of a real-time query, as files of its checkpoint (epochs.py), and the epochs that Spark has committed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import ValidationError

from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.errors import CheckpointError
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.real_time.epochs import RunStart
from watersmeet.runtime.storage import Storage

_RUN = re.compile(r"(\d{6})\.json")
_SIDE_FILE = re.compile(r"batch-(\d+)-.*\.jsonl")


def _folder(checkpoint: Checkpoint, plan: PlanFile | None) -> str:
    return f"{checkpoint.epochs(plan)}/runs"


def _file(folder: str, run: int) -> str:
    return f"{folder}/{run:06}.json"


class RunLog:
    """What the driver knows of a query's runs; ``plan`` is what the plan file of its checkpoint holds."""

    def __init__(self, storage: Storage, checkpoint: Checkpoint, plan: PlanFile | None) -> None:
        self._storage = storage
        self._checkpoint = checkpoint
        self._commits = f"{checkpoint.spark(plan)}/commits"
        self._folder = _folder(checkpoint, plan)

    def read(self) -> list[RunStart]:
        """All runs so far, in order; ``CheckpointError`` if a file is damaged or missing."""
        self._storage.make_folder(self._folder)
        self._storage.remove_temporary(self._folder)
        found = [name for name in self._storage.names(self._folder) if _RUN.fullmatch(name)]
        if found != [f"{number:06}.json" for number in range(len(found))]:
            raise CheckpointError(
                f"{self._folder} lacks a file: it holds {', '.join(found)}",
                hint="restore the folder from a copy, or start on a new checkpoint",
            )
        return [self._read(name) for name in found]

    def successors(self, run: int, plan: PlanFile) -> list[str]:
        """Files of which one is there once the run after ``run`` has begun: here, or where rescaled state goes on."""
        rescaled = plan.model_copy(update={"generation": plan.generation + 1})
        return [_file(folder, run + 1) for folder in (self._folder, _folder(self._checkpoint, rescaled))]

    def add(self, run: int, start: RunStart) -> None:
        """Note the beginning of a run; its tasks may begin after that."""
        text = start.model_copy(update={"run": run}).model_dump_json()
        self._storage.write_text(_file(self._folder, run), sealed(text).decode())

    def committed(self) -> int | None:
        """The last epoch that Spark has committed; None if there is none."""
        names = self._storage.names(self._commits)
        return max((int(name) for name in names if name.isdigit()), default=None)

    def began_after(self, epoch: int) -> float | None:
        """A time before an epoch began, in seconds since 1970: when the one before was committed, or the first run."""
        committed = self._storage.modified(f"{self._commits}/{epoch - 1}")
        return self._storage.modified(_file(self._folder, 0)) if committed is None else committed

    def side_epochs(self) -> list[int]:
        """The epochs that have left side output, in order."""
        return sorted({epoch for epoch, _ in self._side_files()})

    def remove_side_output(self, first: int) -> None:
        """Delete the side output of epochs from ``first`` on, which did not commit: they run again."""
        for epoch, name in self._side_files():
            if epoch >= first:
                self._storage.delete(f"{self._checkpoint.side}/{name}")

    def _side_files(self) -> Iterator[tuple[int, str]]:
        for name in self._storage.names(self._checkpoint.side):
            if found := _SIDE_FILE.fullmatch(name):
                yield int(found[1]), name

    def _read(self, name: str) -> RunStart:
        path = f"{self._folder}/{name}"
        try:
            content, seal = read_sealed((self._storage.read_text(path) or "").encode())
            found = RunStart.model_validate(content)
            if found.version == 1 and (seal is Seal.WRONG or found.run not in (None, int(name.removesuffix(".json")))):
                raise DamageError
        except (DamageError, ValidationError):
            raise CheckpointError(
                f"{path} cannot be read", hint="restore the file from a copy, or start on a new checkpoint"
            ) from None
        if found.version != 1:
            raise CheckpointError(
                f"{path} has format {found.version}, this version of Watersmeet reads 1",
                hint="run it with the version that wrote it, or start on a new checkpoint",
            )
        return found
