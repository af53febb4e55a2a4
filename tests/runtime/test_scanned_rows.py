"""Files of which some rows are to be quarantined: read with the columns that are needed, then with all."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from watersmeet.engine.parquet import ParquetRows
from watersmeet.engine.projection import Projection
from watersmeet.runtime.worker_scan import _read

SCHEMA = pa.schema([("ts", pa.int64()), ("v", pa.int64()), ("text", pa.string())])
PROJECTION = Projection(
    "ts", 1, (("s:v", "v", pa.int64()),), (("h", (("v", pa.int64()),)),), ("ts", "v"), ("ts", "text")
)


class Parts:
    """A file that gives more rows at once where fewer columns are wanted."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def read(self, wanted: ParquetRows) -> Iterator[pa.Table]:
        step = 7 - 2 * len(wanted.schema)
        for start in range(0, self.rows.num_rows, step):
            yield self.rows.slice(start, step).select(wanted.schema.names)


@pytest.mark.parametrize("bad", [0, 1, 2, 3, 5, 7, 9, None])
def test_each_row_comes_once_wherever_the_first_one_to_quarantine_is(bad: int | None) -> None:
    times = [None if i == bad else i for i in range(10)]
    rows = pa.table({"ts": times, "v": range(10), "text": [f"row {i}" for i in range(10)]}, schema=SCHEMA)
    needed = ParquetRows(pa.schema([SCHEMA.field("ts"), SCHEMA.field("v")]))
    read = pa.Table.from_batches(_read(Parts(rows), PROJECTION, needed, ParquetRows(SCHEMA)))
    assert read["s:v"].to_pylist() == list(range(10))
    assert read["$t"].to_pylist() == times
    texts = [None] * 10 if bad is None else [f'{{"text":"row {i}"}}' if i == bad else None for i in range(10)]
    assert read["$raw"].to_pylist() == texts
