"""Hashes of keys for an index: rows whose columns are equal to DuckDB have equal hashes."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[tuple[int], np.dtype[np.uint64]]

#: The odd number next to 2**64 divided by the golden ratio: Fibonacci hashing (Knuth, TAOCP 3, 6.4).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
#: NULL is hashed as this integer, which is no more frequent than others.
_NULL = -0x61C8864680B583EB
_PLACE = "place"


def key_hashes(connection: duckdb.DuckDBPyConnection, keys: pa.Table) -> Numbers:
    """Return a hash of all columns for each row.  NULL equals NULL; the high bits are well mixed."""
    if all(pa.types.is_integer(field.type) for field in keys.schema):
        return _of_integers(keys)
    columns = [f"key_{number}" for number in range(keys.num_columns)]
    # DuckDB does not guarantee the order of rows
    rows = keys.rename_columns(columns).append_column(_PLACE, pa.array(np.arange(keys.num_rows)))
    found = connection.from_arrow(rows).select(f"hash({', '.join(columns)}) AS hash, {_PLACE}").to_arrow_table()
    hashes = np.empty(keys.num_rows, dtype=np.uint64)
    hashes[found[_PLACE].to_numpy()] = found["hash"].to_numpy()
    return hashes


def _of_integers(keys: pa.Table) -> Numbers:
    """Hash integers without a SQL statement, which for a few rows would take longer than all the rest."""
    mixed = np.zeros(keys.num_rows, dtype=np.uint64)
    for column in keys.columns:
        mixed ^= pc.fill_null(column.cast(pa.int64()), _NULL).to_numpy().view(np.uint64)
        mixed *= _GOLDEN
        mixed ^= mixed >> _HALF
    return mixed * _GOLDEN
