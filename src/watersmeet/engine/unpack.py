"""Frames into rows, at the end of a query, in a Spark task.

Late and quarantined rows are written to files beside the checkpoint.  File names hold batch and bucket, so a batch that
runs twice writes the same files again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa

from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.mail import Mail
from watersmeet.filesystems import filesystem_of
from watersmeet.kernels.api import NEVER

FRONTIER = "$frontier"


def unpack(
    batches: Iterable[Iterable[Frame]], schema: pa.Schema, side_folder: str | None, batch_id: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all ROWS frames; write side rows to ``side_folder`` (a path or URI; None: drop them).

    If ``schema`` has a column ``$frontier``, the operator's frontier is a row in which only that column is not NULL.
    """
    with_frontier = FRONTIER in schema.names
    side, buckets = Mail(), set[int]()
    for frame in chain.from_iterable(batches):
        if frame.kind is FrameKind.ROWS:
            rows = decode_table(frame.payload)
            if with_frontier:
                rows = rows.append_column(FRONTIER, pa.nulls(rows.num_rows, pa.int64()))
            yield from rows.to_batches()
        elif frame.kind is FrameKind.MARK and with_frontier and frame.frontier != NEVER:
            yield pa.RecordBatch.from_pylist([{FRONTIER: frame.frontier}], schema=schema)
        elif frame.kind is FrameKind.SIDE and side_folder is not None:
            side.put(frame)
            buckets.add(frame.bucket)
    if buckets:  # in one file, whatever the order and the cut of frames
        path = f"{side_folder}/batch-{batch_id}-{min(buckets)}-0.jsonl"
        write_side_rows((decode_table(frame.payload) for frame in side.take()), path)


def write_side_rows(tables: Iterable[pa.Table], path: str) -> None:
    """Write rows of the side output as lines of JSON; a file that is there is replaced."""
    filesystem, inner = filesystem_of(path)
    filesystem.create_dir(inner.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(inner) as out:
        for row in (row for table in tables for row in table.to_pylist()):
            out.write(json.dumps(row).encode() + b"\n")
