"""Lines of text that Spark has read, as records: lines of one place keep the order in which they came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import SEQUENCE, TP_TIME

LINE = "value"
#: The columns of a line as Spark reads it; many lines share the position of their block.
LINE_SCHEMA = pa.schema([(LINE, pa.binary()), (SEQUENCE, pa.binary()), (TP_TIME, pa.timestamp("us", "UTC"))])


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines, each with a position of its own; ``rows`` has the columns ``LINE_SCHEMA``."""

    rows: pa.RecordBatch

    @property
    def values(self) -> pa.Array:
        """The lines."""
        return self.rows.column(LINE)

    def hidden(self, names: Sequence[str], numbers: np.ndarray) -> pa.Table:
        """The hidden columns as they came."""
        return pa.Table.from_batches([self.rows.select(list(names)).take(pa.array(numbers))])

    def raw(self, numbers: np.ndarray) -> pa.RecordBatch:
        """The lines with these numbers as ``LINE_SCHEMA``."""
        return self.rows.take(pa.array(numbers))


@dataclass(slots=True)
class LineReader:
    """Takes batches of a task's lines, in their order, and numbers the lines.

    Lines that are left to Spark meet the others again, in whatever order; their numbers tell which came first.
    """

    _seen: int = 0

    def __call__(self, batch: pa.RecordBatch) -> Iterator[Lines]:
        """The lines of a batch."""
        numbers = np.arange(self._seen, self._seen + batch.num_rows, dtype=">i8").tobytes()
        self._seen += batch.num_rows
        suffix = pa.Array.from_buffers(pa.binary(8), batch.num_rows, [None, pa.py_buffer(numbers)]).cast(pa.binary())
        places = pc.binary_join_element_wise(batch.column(SEQUENCE), suffix, pa.scalar(b"", pa.binary()))
        columns = {**dict(zip(batch.schema.names, batch.columns, strict=True)), SEQUENCE: places}
        yield Lines(
            pa.RecordBatch.from_arrays([columns[each.name].cast(each.type) for each in LINE_SCHEMA], schema=LINE_SCHEMA)
        )
