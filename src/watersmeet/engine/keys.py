"""The columns that hold a row's key wherever the row is, and from them the hashes that choose its bucket.

Rows are hashed at their source, and hashes that no later operator needs are dropped.  When the number of buckets
changes, they are computed again from the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.routing import combined


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Where a row has a part of its key: in the first of the ``columns`` that is not NULL, ``scale`` times its value.

    ``type`` is the one in which the source hashed it.
    """

    columns: tuple[str, ...]
    type: pa.DataType
    scale: int = 1


#: The parts of a key that each hash column of an input is made of.
HashedKeys: TypeAlias = tuple[tuple[KeyColumn, ...], ...]
#: Hashes values as the source does: int64 for each row.
Hasher: TypeAlias = Callable[[Sequence[pa.ChunkedArray]], np.ndarray]


def hashes_of(rows: pa.Table, keys: HashedKeys, names: Mapping[str, str], hasher: Hasher) -> np.ndarray:
    """Return the hash of each row's whole key; ``names`` are those of columns that the rows have under others."""
    return combined((hasher([_values(rows, part, names) for part in parts]) for parts in keys), rows.num_rows)


def _values(rows: pa.Table, part: KeyColumn, names: Mapping[str, str]) -> pa.ChunkedArray:
    found = [rows[names.get(name, name)] for name in part.columns]
    values = found[0] if len(found) == 1 else pc.coalesce(*found)
    if part.scale != 1:
        values = pc.divide(values, pa.scalar(part.scale, pa.int64()))
    return values.cast(part.type)
