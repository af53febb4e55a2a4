"""Takes back, from a table, what runs in real time wrote of epochs that did not commit.

Why is told in connectors/kafka/void_results.py.  A table has no place for the rows that keys had when an epoch began,
so they are noted in the checkpoint: before a key is first written in an epoch.

    EPOCHS/sink/EPOCH-RUN-TASK-NUMBER.rows      rows of keys, with 1 in _tp_delta; -1: the key had no row

A file that a crash has cut off is of rows that were never written: each has its checksum.

A task may still write when its run has ended.  What becomes of its rows is told in connector.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs

from watersmeet.catalog.streams import StreamDef
from watersmeet.checksums import checksum
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.net_changes import net_changes
from watersmeet.filesystems import filesystem_of
from watersmeet.runtime.real_time.sinks import RunName

_FILE = re.compile(r"(\d{9})-(\d{6})-(\d{6})-(\d{9})\.rows")
_SUM_BYTES = len(checksum([b""]))


@dataclass(slots=True)
class Journal:
    """What one task notes of an epoch."""

    folder: str
    run: int
    epoch: int
    task: int
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _written: int = 0

    def note(self, changes: pa.Table, stream: StreamDef) -> None:
        """Note the rows that keys have, which ``changes`` are about to give others, if these are their first ones."""
        net = net_changes(changes, stream, keep_replaced=True)
        before = _unseen(_first_of_each(net, stream), stream, self._seen)
        if not before.num_rows:
            return
        if not self._written:
            _remove(self.folder, lambda epoch, _, task: epoch < self.epoch and task == self.task)
        _write(self.folder, f"{self.epoch:09}-{self.run:06}-{self.task:06}-{self._written:09}.rows", before)
        self._written += 1


@lru_cache(maxsize=64)
def journal(folder: str, run: int, epoch: int, task: int) -> Journal:
    """The journal of a task in this process: a task runs once in an epoch."""
    return Journal(folder, run, epoch, task)


def void_rows(run: RunName, stream: StreamDef) -> pa.Table | None:
    """What keys had before epochs from the run's first one on, which earlier runs have written to; None if nothing.

    Notes of epochs before it are removed: these have committed.
    """
    first = run.firsts[run.run]
    _remove(run.folder, lambda epoch, *_: epoch < first)
    filesystem, path = filesystem_of(run.folder)
    names = sorted((int(each[2]), name) for name, each in _names(run.folder) if int(each[2]) < run.run)
    tables = [table for _, name in names if (table := _read(filesystem, f"{path}/{name}")) is not None]
    return _unseen(pa.concat_tables(tables), stream, set()) if tables else None


def forget(run: RunName) -> None:
    """Remove the notes of earlier runs, once the table has what they say."""
    _remove(run.folder, lambda _epoch, other, _task: other < run.run)


def _first_of_each(net: pa.Table, stream: StreamDef) -> pa.Table:
    """A row for each changed key: what it had, or, with -1, what it gets though it had none."""
    gone = pc.less(net[TP_DELTA], 0)
    lost, come = net.filter(gone), net.filter(pc.invert(gone))
    had = set(_keys(lost, stream))
    new = come.filter(pa.array([key not in had for key in _keys(come, stream)], pa.bool_()))
    marks = [*[1] * lost.num_rows, *[-1] * new.num_rows]
    rows = pa.concat_tables([lost, new])
    return rows.set_column(rows.column_names.index(TP_DELTA), TP_DELTA, pa.array(marks, rows[TP_DELTA].type))


def _unseen(rows: pa.Table, stream: StreamDef, seen: set[tuple[object, ...]]) -> pa.Table:
    """The first row of each key that was not ``seen``, which it is from now on."""
    is_new = []
    for key in _keys(rows, stream):
        is_new.append(key not in seen)
        seen.add(key)
    return rows.filter(pa.array(is_new, pa.bool_()))


def _keys(rows: pa.Table, stream: StreamDef) -> Iterator[tuple[object, ...]]:
    return zip(*(rows[name].to_pylist() for name in stream.primary_key), strict=True)


def _names(folder: str) -> Iterator[tuple[str, re.Match[str]]]:
    filesystem, path = filesystem_of(folder)
    for info in filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True)):
        if (found := _FILE.fullmatch(info.base_name)) is not None:
            yield info.base_name, found


def _remove(folder: str, is_old: Callable[[int, int, int], bool]) -> None:
    """Remove files by their epoch, run and task."""
    filesystem, path = filesystem_of(folder)
    for name, found in list(_names(folder)):
        if is_old(int(found[1]), int(found[2]), int(found[3])):
            filesystem.delete_file(f"{path}/{name}")


def _write(folder: str, name: str, rows: pa.Table) -> None:
    filesystem, path = filesystem_of(folder)
    filesystem.create_dir(path, recursive=True)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    content = sink.getvalue()
    with filesystem.open_output_stream(f"{path}/{name}") as out:
        out.write(checksum([content]).encode())
        out.write(content)


def _read(filesystem: pyarrow.fs.FileSystem, path: str) -> pa.Table | None:
    """The rows of a file; None if it was cut off."""
    with filesystem.open_input_file(path) as file:
        content = file.readall()
    stored, body = content[:_SUM_BYTES].decode(errors="replace"), content[_SUM_BYTES:]
    return pa.ipc.open_stream(body).read_all() if checksum([body]) == stored else None
