"""The hot keys of a query, as files beside its checkpoint: packing tasks know no state.

    FOLDER/QUERY/OPERATOR/BATCH.json    the keys that are hot in the batches after this one

QUERY is Spark's id of the query, which a restart keeps.  A batch is packed by the newest entry before it.  Whatever
attempt of a batch writes first is kept: entries are never written twice, so that each attempt of a later batch, of any
task, finds the same.
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
from watersmeet.runtime.exchange import batch_id, query_id


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
        return (None, {}) if newest is None else (newest, _read(filesystem, f"{path}/{newest}.json")[1])

    def write(self, keys: HotKeys, newest: Sequence[int]) -> tuple[int, HotKeys]:
        """Leave an entry of this batch, unless an earlier attempt has; what stands there comes back."""
        filesystem, path = filesystem_of(self._path())
        entry = f"{path}/{batch_id()}.json"
        if filesystem.get_file_info(entry).type is pyarrow.fs.FileType.NotFound:
            text = {"newest": list(newest), "keys": {str(key): asdict(each) for key, each in keys.items()}}
            part = f"{path}/{uuid.uuid4().hex}.part"
            filesystem.create_dir(path, recursive=True)
            with filesystem.open_output_stream(part) as out:
                out.write(json.dumps(text).encode())
            filesystem.move(part, entry)
            for old in sorted(each for each in _entries(filesystem, path) if each < batch_id())[:-1]:
                filesystem.delete_file(f"{path}/{old}.json")
        of, stored = _read(filesystem, entry)
        if of != list(newest):
            raise CheckpointError(
                f"{entry} is of another batch than the one that is run now",
                hint="does the same SELECT stand in this query twice, or has a checkpoint been brought back without "
                "its hot keys? Use SETTINGS skew = 'keep' on a new checkpoint",
            )
        return batch_id(), stored

    def _path(self) -> str:
        return f"{self.folder}/{query_id()}/{self.operator}"


def _entries(filesystem: pyarrow.fs.FileSystem, path: str) -> list[int]:
    found = filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True))
    return [int(info.base_name.removesuffix(".json")) for info in found if info.extension == "json"]


def _read(filesystem: pyarrow.fs.FileSystem, entry: str) -> tuple[list[int], dict[int, HotKey]]:
    with filesystem.open_input_stream(entry) as file:
        text = json.loads(file.read())
    keys = {int(key): HotKey(**{**each, "phase": Phase(each["phase"])}) for key, each in text["keys"].items()}
    return text["newest"], keys
