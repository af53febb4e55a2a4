"""Frames into rows, at the end of a query, in a Spark task.

Side rows (late, quarantined and evicted ones) are written to files beside the checkpoint.  A task has one file for each
batch: when the batch runs again, the task replaces it, or deletes it if there are no side rows any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
from pyarrow.fs import FileType

from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.mail import Mail
from watersmeet.filesystems import filesystem_of
from watersmeet.kernels.api import NEVER

FRONTIER = "$frontier"


def unpack(batches: Iterable[Iterable[Frame]], schema: pa.Schema, side_file: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all ROWS frames; write side rows to ``side_file`` (a path or URI; None: drop them).

    If ``schema`` has a column ``$frontier``, the operator's frontier is a row in which only that column is not NULL.
    """
    with_frontier = FRONTIER in schema.names
    side = Mail()
    for frame in chain.from_iterable(batches):
        if frame.kind is FrameKind.ROWS:
            rows = decode_table(frame.payload)
            if with_frontier:
                rows = rows.append_column(FRONTIER, pa.nulls(rows.num_rows, pa.int64()))
            yield from rows.to_batches()
        elif frame.kind is FrameKind.MARK and with_frontier and frame.frontier != NEVER:
            yield pa.RecordBatch.from_pylist([{FRONTIER: frame.frontier}], schema=schema)
        elif frame.kind is FrameKind.SIDE and side_file is not None:
            side.put(frame)
    if side_file is not None:
        write_side_rows(side, side_file)


def side_file_of(folder: str, batch_id: int, task: int) -> str:
    """Return where a task writes the side rows of a batch."""
    return f"{folder}/batch-{batch_id}-{task}.jsonl"


def write_side_rows(frames: Mail, path: str) -> None:
    """Write the rows of side frames as lines of JSON, in place of a file that is there; without any, delete it."""
    filesystem, inner = filesystem_of(path)
    if not len(frames):
        if filesystem.get_file_info(inner).type is not FileType.NotFound:  # HDFS has no error of its own for that
            filesystem.delete_file(inner)
        return
    filesystem.create_dir(inner.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(inner) as out:
        for frame in frames.take():
            for row in decode_table(frame.payload).to_pylist():
                out.write(json.dumps(row).encode() + b"\n")
