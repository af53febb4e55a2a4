"""The frames of an operator as rows of another one's input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from watersmeet.columns import PACKED
from watersmeet.engine.frames import Frame, FrameKind, decode_table, to_record_batch
from watersmeet.engine.unpack import FRONTIER
from watersmeet.kernels.api import NEVER


def rows_with_frontiers(frames: Iterable[Frame], schema: pa.Schema, bucket: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all frames, and rows that hold nothing but a frontier or another frame, for ``bucket``.

    ``schema`` has ``$frontier`` and ``_wm_packed`` at its end.
    """
    for frame in frames:
        if frame.kind is FrameKind.ROWS:
            for rows in decode_table(frame.payload).to_batches():
                nothing = [pa.nulls(rows.num_rows, schema.field(name).type) for name in (FRONTIER, PACKED)]
                yield pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=schema)
        elif frame.kind is FrameKind.MARK:
            if frame.frontier != NEVER:
                yield pa.RecordBatch.from_pylist([{FRONTIER: frame.frontier}], schema=schema)
        else:
            whole = to_record_batch([replace(frame, bucket=bucket)]).to_struct_array()
            nothing = [pa.nulls(1, field.type) for field in list(schema)[:-1]]
            yield pa.RecordBatch.from_arrays([*nothing, whole], schema=schema)
