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
    """Some lines: ``rows`` has the columns ``LINE_SCHEMA``, ``first`` is the number of the first line in its task.

    A line's number goes into its position.  Lines that are left to Spark meet the others again, in whatever order;
    their numbers tell which came first.
    """

    rows: pa.RecordBatch
    first: int

    @property
    def values(self) -> pa.Array:
        """The lines."""
        return self.rows.column(LINE)

    def hidden(self, names: Sequence[str], numbers: np.ndarray) -> pa.Table:
        """The hidden columns that Spark has read, with each line's own position."""
        return pa.Table.from_batches([self._numbered(names, numbers)])

    def raw(self, numbers: np.ndarray) -> pa.RecordBatch:
        """The lines with these numbers as ``LINE_SCHEMA``, each with its own position."""
        return self._numbered(LINE_SCHEMA.names, numbers)

    def _numbered(self, names: Sequence[str], numbers: np.ndarray) -> pa.RecordBatch:
        found = self.rows.select(list(names)).take(pa.array(numbers))
        if SEQUENCE not in names:
            return found
        suffixes = (self.first + numbers).astype(">i8").tobytes()
        suffix = pa.Array.from_buffers(pa.binary(8), len(numbers), [None, pa.py_buffer(suffixes)]).cast(pa.binary())
        places = pc.binary_join_element_wise(found.column(SEQUENCE), suffix, pa.scalar(b"", pa.binary()))
        return found.set_column(found.schema.get_field_index(SEQUENCE), SEQUENCE, places)


@dataclass(slots=True)
class LineReader:
    """Takes batches of a task's lines, in their order."""

    _seen: int = 0

    def __call__(self, batch: pa.RecordBatch) -> Iterator[Lines]:
        """The lines of a batch."""
        yield Lines(batch.select(LINE_SCHEMA.names).cast(LINE_SCHEMA), self._seen)
        self._seen += batch.num_rows
