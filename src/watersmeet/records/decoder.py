"""What every decoder of records offers, and how one that only takes whole blocks is kept going by its records.

A decoder is strict: it decodes a record only where the result is what Spark would make of it, and leaves all others to
Spark (connectors/formats/values.py), which also says what is wrong with a bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

#: After as many failures among the records of one call, the rest is left to Spark: without any success, it is not the
#: format that we expect; else to find each bad record would take longer than Spark.
_MOST_FAILURES_AT_FIRST, _MOST_FAILURES = 64, 512

#: The rows of a block of records, one each; or a mask of records that only Spark can decode; or None, if there are some
#: but it is not known which.
Block: TypeAlias = pa.Table | np.ndarray | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows with the declared columns, the number of each row's record, and the numbers of the records left to Spark.

    Both are in the order of the records.  A record that is in neither has no rows.
    """

    rows: pa.Table
    records: np.ndarray
    left: np.ndarray


class Decoder(Protocol):
    """Decodes records of one format into declared columns."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode ``values`` (``binary``; NULL: a record without a value)."""


def decode_blocks(values: pa.Array, numbers: np.ndarray, decode: Callable[[pa.Array], Block]) -> Decoded:
    """Decode the records with the given ascending ``numbers``; all others are left.

    A block of which ``decode`` does not say which records are in its way is halved, until it is a single record.
    """
    tables: list[pa.Table] = []
    decoded: list[np.ndarray] = []
    for block, table in _halved(values, numbers, decode):
        tables.append(table)
        decoded.append(block)
    records = np.concatenate(decoded) if decoded else np.empty(0, np.int64)
    is_left = np.ones(len(values), bool)
    is_left[records] = False
    rows = pa.concat_tables(tables) if tables else decode(values.slice(0, 0))
    assert isinstance(rows, pa.Table)
    return Decoded(rows, records, np.flatnonzero(is_left))


def _halved(
    values: pa.Array, numbers: np.ndarray, decode: Callable[[pa.Array], Block]
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Yield blocks of numbers and their rows, in order."""
    failures, most = 0, _MOST_FAILURES_AT_FIRST
    blocks = [numbers]
    while blocks:
        block = blocks.pop()
        if len(block) == 0:
            continue
        whole = len(block) == len(values)
        found = decode(values if whole else values.take(pa.array(block)))
        if isinstance(found, pa.Table):
            most = _MOST_FAILURES
            yield block, found
            continue
        if found is not None:
            blocks.append(block[~found])
            continue
        failures += 1
        if failures > most:
            return
        if len(block) > 1:
            middle = len(block) // 2
            blocks += [block[middle:], block[:middle]]


def bounds(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each record begins and ends in the data, and the data as bytes; a NULL is an empty record."""
    if len(values) == 0:  # there may be no offsets
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    found = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    starts, ends = ends[:-1], ends[1:]
    if values.null_count:
        ends = np.where(values.is_valid().to_numpy(zero_copy_only=False), ends, starts)
    return starts, ends, found
