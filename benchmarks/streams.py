"""Two event streams as Parquet files, for benchmarks.

Each side has columns {s}_key BIGINT, {s}_id BIGINT, {s}_val DOUBLE and {s}_ts TIMESTAMP: one event a millisecond,
event times out of order by up to half a second, keys uniform.  Modification times rise with the file number, so that
Spark reads the files in order.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_START_MICROS = 1_640_995_200_000_000
_DISORDER_MICROS = 500_000


def write_streams(folder: Path, *, rows: int, keys: int, files: int, seed: int = 7) -> Path:
    """Write ``rows`` events a side in ``files`` files under ``folder``/l and ``folder``/r; there already: keep them."""
    rng = np.random.default_rng(seed)
    done = folder / f"{rows}-{keys}-{files}-{seed}.done"
    if done.exists():
        return folder
    per_file = rows // files
    for side in "lr":
        (folder / side).mkdir(parents=True, exist_ok=True)
        for number in range(files):
            first = number * per_file
            times = _START_MICROS + (first + np.arange(per_file)) * 1000
            times += rng.integers(-_DISORDER_MICROS, _DISORDER_MICROS, per_file)
            table = pa.table(
                {
                    f"{side}_key": pa.array(rng.integers(0, keys, per_file), pa.int64()),
                    f"{side}_id": pa.array(np.arange(first, first + per_file), pa.int64()),
                    f"{side}_val": pa.array(rng.random(per_file)),
                    f"{side}_ts": pa.array(times, pa.timestamp("us", tz="UTC")),
                }
            )
            path = folder / side / f"part-{number:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    done.touch()
    return folder
