"""Event streams as Parquet files, for benchmarks.

Each side ``s`` has columns s_key (BIGINT, or STRING of 36 characters), s_id BIGINT, s_val DOUBLE and s_ts TIMESTAMP,
and optional further ones (s_c0 DOUBLE, s_c1 STRING, and so on in turn).  Event times are out of order by up to half a
second.  Modification times increase with the file number, so that Spark reads the files in order.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_MICROS = 1_640_995_200_000_000
_DISORDER_MICROS = 500_000


@dataclass(frozen=True, slots=True)
class Data:
    """``rows`` rows per side in ``files`` files, one event every ``gap`` microseconds, with uniform keys.

    A share ``hot`` of all rows has the key 0.  The events of ``sides`` are independent.  Those of ``sparse`` sides have
    a hundred times as many keys.
    """

    rows: int
    files: int
    keys: int = 100_000
    gap: int = 1_000
    text_keys: bool = False
    more_columns: int = 0
    hot: float = 0.0
    sides: str = "lr"
    sparse: str = ""

    @property
    def name(self) -> str:
        """A folder name that is unique to this data."""
        kind = ("t" if self.text_keys else "") + (f"h{round(self.hot * 100)}" if self.hot else "")
        return f"{self.rows}-{self.files}-{self.keys}-{self.gap}-{self.more_columns}{kind}{self.sides}{self.sparse}"

    @property
    def rows_a_batch(self) -> int:
        """The number of rows of all sides in one batch, which has one file of each side."""
        return len(self.sides) * (self.rows // self.files)

    @property
    def end_micros(self) -> int:
        """The event time of the last rows."""
        return START_MICROS + self.rows * self.gap

    def keys_of(self, side: str) -> int:
        """Return how many keys the rows of a side have."""
        return self.keys * (100 if side in self.sparse else 1)

    def columns(self, side: str) -> str:
        """Return a side's columns as declared in SQL."""
        key = "STRING" if self.text_keys else "BIGINT"
        more = "".join(f", {side}_c{i} {'STRING' if i % 2 else 'DOUBLE'}" for i in range(self.more_columns))
        return f"{side}_key {key}, {side}_id BIGINT, {side}_val DOUBLE, {side}_ts TIMESTAMP{more}"


def streams_folder() -> Path:
    """Return the folder of generated streams, which later runs reuse: generating them takes long."""
    return Path(tempfile.gettempdir()) / "watersmeet-bench"


def write_streams(below: Path, data: Data, seed: int = 7) -> Path:
    """Write the streams, each side in a folder of its own, and return the parent; existing files are kept."""
    folder = below / data.name
    done = folder / "done"
    if done.exists():
        return folder
    rng = np.random.default_rng(seed)
    names = _names(data.keys) if data.text_keys or data.more_columns else pa.array([], pa.string())
    count = data.rows // data.files
    for side in data.sides:
        (folder / side).mkdir(parents=True, exist_ok=True)
        for number in range(data.files):
            first = number * count
            times = START_MICROS + (first + np.arange(count)) * data.gap
            times += rng.integers(-_DISORDER_MICROS, _DISORDER_MICROS, count)
            keys = np.where(rng.random(count) < data.hot, 0, rng.integers(0, data.keys_of(side), count))
            columns = {
                f"{side}_key": names.take(pa.array(keys)) if data.text_keys else pa.array(keys, pa.int64()),
                f"{side}_id": pa.array(np.arange(first, first + count), pa.int64()),
                f"{side}_val": pa.array(rng.random(count)),
                f"{side}_ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            }
            for i in range(data.more_columns):
                columns[f"{side}_c{i}"] = names.take(pa.array(keys)) if i % 2 else pa.array(rng.random(count))
            path = folder / side / f"part-{number:05d}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    done.touch()
    return folder


def _names(keys: int) -> pa.Array:
    """Return a text of 36 characters for each key."""
    return pa.array([f"{key * 2_654_435_761 % 2**32:08x}-0000-4000-8000-{key:012x}" for key in range(keys)])
