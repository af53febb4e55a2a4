"""The hot keys of a query, as files beside its checkpoint: packing tasks have no state.

    FOLDER/QUERY/OPERATOR/BATCH.json    the keys that are hot in the batches after this one

QUERY is Spark's id of the query, which restarts keep.  The newest entry before a batch determines how it is packed.
Within one run of the query, what an attempt at a batch writes first is kept, so that every attempt at a later batch, of
any task, finds the same entry.  A later run that processes the batch again replaces the entry with its own.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.fs

from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.engine.hot_keys import Entry, HotKey, HotKeys, Phase
from watersmeet.errors import CheckpointError
from watersmeet.filesystems import filesystem_of
from watersmeet.runtime.exchange import batch_id, query_id, run_id

_FILE_NAME = re.compile(r"(\d+)\.json")


@dataclass(frozen=True, slots=True)
class HotKeyFiles:
    """The log of one operator's hot keys, read and written by the running task."""

    folder: str
    operator: str

    def read(self) -> Entry:
        """The newest entry before this batch."""
        with self._opened() as (filesystem, path):
            current = batch_id()
            newest = max((batch for batch in _batches(filesystem, path) if batch < current), default=None)
            return Entry() if newest is None else _read(filesystem, path, newest).entry

    def append(self, before: Entry, after: HotKeys, seen: Sequence[int]) -> Entry:
        """Write the entry that holds after this batch, unless an earlier attempt has; the entry comes back.

        Raises ``CheckpointError`` if that attempt saw other rows.
        """
        batch = batch_id()
        with self._opened() as (filesystem, path):
            there = batch in _batches(filesystem, path)
            if there and (file := _read(filesystem, path, batch)).run == run_id():
                if file.seen != list(seen):
                    raise CheckpointError(
                        f"{path}/{batch}.json was written for other rows than this batch has",
                        hint="does this query contain the same SELECT twice? Omit skew = 'spread' from one of "
                        "them, on a new checkpoint",
                    )
                return file.entry
            if after == before.keys:
                if there:
                    filesystem.delete_file(f"{path}/{batch}.json")
                return before
            entry = Entry(batch, after)
            _write(filesystem, path, _File(run_id(), list(seen), entry))
            for old in sorted(each for each in _batches(filesystem, path) if each < batch)[:-1]:
                filesystem.delete_file(f"{path}/{old}.json")
            return entry

    @contextmanager
    def _opened(self) -> Iterator[tuple[pyarrow.fs.FileSystem, str]]:
        folder = f"{self.folder}/{query_id()}/{self.operator}"
        try:
            yield filesystem_of(folder)
        except (OSError, pa.ArrowException) as error:
            raise CheckpointError(
                f"the hot keys in {folder} cannot be read or written by a worker: {str(error).splitlines()[0]}",
                hint="start on a new checkpoint with SETTINGS skew = 'keep', which needs no such files",
            ) from None


@dataclass(frozen=True, slots=True)
class _File:
    """The content of a file: the run of the query that wrote it, the numbers it was decided on, and the entry."""

    run: str
    seen: list[int]
    entry: Entry


def _batches(filesystem: pyarrow.fs.FileSystem, path: str) -> list[int]:
    found = filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True))
    names = (_FILE_NAME.fullmatch(info.base_name) for info in found)
    return [int(name[1]) for name in names if name is not None]


def _read(filesystem: pyarrow.fs.FileSystem, path: str, batch: int) -> _File:
    with filesystem.open_input_stream(f"{path}/{batch}.json") as file:
        return _decoded(file.read(), path, batch)


def keys_in(text: str, path: str, batch: int) -> HotKeys:
    """The hot keys in the text of the file of a batch, which is in the folder ``path``."""
    return _decoded(text.encode(), path, batch).entry.keys


def _decoded(content: bytes, path: str, batch: int) -> _File:
    try:
        found, seal = read_sealed(content)
        keys = {int(key): HotKey(**{**each, "phase": Phase(each["phase"])}) for key, each in found["keys"].items()}
        # versions that wrote no checksum did not write the name either; where it is wrong, the name is one too many
        members = {"run", "seen", "keys", *(["name"] if seal is Seal.RIGHT else [])}
        if set(found) != members or found.get("name") not in (None, _full_name(path, batch)):
            raise DamageError
        return _File(found["run"], found["seen"], Entry(batch, keys))
    except (DamageError, KeyError, TypeError, ValueError, AttributeError):
        raise CheckpointError(
            f"{path}/{batch}.json is damaged: it does not hold the hot keys of a batch",
            hint="restore the checkpoint from a copy, or start on a new one",
        ) from None


def _write(filesystem: pyarrow.fs.FileSystem, path: str, file: _File) -> None:
    """Write a file atomically; two attempts of one run decide alike, so it does not matter whose file stays."""
    assert file.entry.batch is not None
    keys = {str(key): asdict(each) for key, each in file.entry.keys.items()}
    fields = {"name": _full_name(path, file.entry.batch), "run": file.run, "seen": file.seen, "keys": keys}
    filesystem.create_dir(path, recursive=True)
    part = f"{path}/{uuid.uuid4().hex}.part"
    with filesystem.open_output_stream(part) as out:
        out.write(sealed(json.dumps(fields)))
    filesystem.move(part, f"{path}/{file.entry.batch}.json")


def _full_name(path: str, batch: int) -> str:
    """A file's name with those of its folders, which tell the operators of all queries apart."""
    return "/".join([*path.rstrip("/").split("/")[-2:], str(batch)])
