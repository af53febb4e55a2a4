"""The hot keys of a query, as files beside its checkpoint: packing tasks know no state.

    FOLDER/QUERY/OPERATOR/BATCH.json    the keys that are hot in the batches after this one

QUERY is Spark's id of the query, which a restart keeps.  A batch is packed by the newest entry before it.  In one run
of the query what an attempt of a batch writes first is kept, so that each attempt of a later batch, of any task, finds
the same; a later run, in which the batch is done again, begins with its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow.fs

from watersmeet.engine.files import filesystem_of
from watersmeet.engine.hot_keys import HotKey, HotKeys, Phase
from watersmeet.errors import CheckpointError
from watersmeet.runtime.exchange import batch_id, query_id, run_id


@dataclass(frozen=True, slots=True)
class _Entry:
    """What one file says: the keys, the run of the query that wrote it, and the numbers that its decision rests on."""

    run: str
    seen: list[int]
    keys: dict[int, HotKey]

    def to_json(self) -> bytes:
        keys = {str(key): asdict(each) for key, each in self.keys.items()}
        return json.dumps({"run": self.run, "seen": self.seen, "keys": keys}).encode()


@dataclass(frozen=True, slots=True)
class HotKeyFiles:
    """The log of one operator's hot keys, as the running task finds and leaves it."""

    folder: str
    operator: str

    def read(self) -> tuple[int | None, HotKeys]:
        """The newest entry before this batch: its batch (None: there is none), and what it says."""
        filesystem, path = filesystem_of(self._path())
        current = batch_id()
        newest = max((entry for entry in _entries(filesystem, path) if entry < current), default=None)
        return (None, {}) if newest is None else (newest, _read(filesystem, f"{path}/{newest}.json").keys)

    def settle(self, before: HotKeys, after: HotKeys, seen: Sequence[int]) -> tuple[int | None, HotKeys]:
        """What holds after this batch, and the batch of its entry where that is new."""
        filesystem, path = filesystem_of(self._path())
        name = f"{path}/{batch_id()}.json"
        there = filesystem.get_file_info(name).type is not pyarrow.fs.FileType.NotFound
        if there and (entry := _read(filesystem, name)).run == run_id():
            if entry.seen != list(seen):
                raise CheckpointError(
                    f"{name} is of other rows than those that this batch has",
                    hint="does the same SELECT stand in this query twice? Leave skew = 'spread' out of one of them, "
                    "on a new checkpoint",
                )
            return batch_id(), entry.keys
        if after == before:
            if there:
                filesystem.delete_file(name)
            return None, before
        filesystem.create_dir(path, recursive=True)
        part = f"{path}/{uuid.uuid4().hex}.part"
        with filesystem.open_output_stream(part) as out:
            out.write(_Entry(run_id(), list(seen), dict(after)).to_json())
        filesystem.move(part, name)
        for old in sorted(each for each in _entries(filesystem, path) if each < batch_id())[:-1]:
            filesystem.delete_file(f"{path}/{old}.json")
        return batch_id(), after

    def _path(self) -> str:
        return f"{self.folder}/{query_id()}/{self.operator}"


def _entries(filesystem: pyarrow.fs.FileSystem, path: str) -> list[int]:
    found = filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True))
    return [int(info.base_name.removesuffix(".json")) for info in found if info.extension == "json"]


def _read(filesystem: pyarrow.fs.FileSystem, name: str) -> _Entry:
    with filesystem.open_input_stream(name) as file:
        text = json.loads(file.read())
    keys = {int(key): HotKey(**{**each, "phase": Phase(each["phase"])}) for key, each in text["keys"].items()}
    return _Entry(text["run"], text["seen"], keys)
