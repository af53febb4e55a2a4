"""Rows that Spark computes, and the frames that travel beside them in ``_wm_packed``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import PACKED
from watersmeet.engine.frames import FRAME_SCHEMA, Frame, from_record_batch


def in_turn(arrived: Sequence[pa.RecordBatch]) -> Iterator[pa.Table | list[Frame]]:
    """Yield rows, without ``_wm_packed``, and frames in the order in which they came."""
    for batch in pa.Table.from_batches(arrived).combine_chunks().to_batches():
        is_row = pc.is_null(batch.column(PACKED)).to_numpy(zero_copy_only=False)
        changes = np.flatnonzero(np.diff(is_row)) + 1
        for start, end in pairwise([0, *changes.tolist(), len(is_row)]):
            part = batch.slice(start, end - start)
            if is_row[start]:
                yield pa.Table.from_batches([part]).drop_columns([PACKED])
            else:
                frames = pa.RecordBatch.from_arrays(part.column(PACKED).flatten(), schema=FRAME_SCHEMA)
                yield list(from_record_batch(frames))
