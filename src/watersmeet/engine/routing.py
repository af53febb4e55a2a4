"""Routing: which bucket a row belongs to, and which number a bucket has.

Buckets are the parallel pieces of an operator's state.  Before rows are packed, ``xxhash64`` of the key columns is
computed, which is stable and follows Spark's equality.  Here, the hashes of a key's columns are combined, and the
bucket is the hash modulo the number of buckets.  The hash of a padded row is NULL, which counts as the hash of NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: xxhash64 of NULL: its seed.
NULL_HASH = 42


def key_hashes(table: pa.Table, hash_columns: Sequence[str]) -> np.ndarray:
    """Return the hash of each row's whole key; without hash columns (no key), all rows have the same hash."""
    return combined((pc.fill_null(table[name], NULL_HASH).to_numpy() for name in hash_columns), table.num_rows)


def combined(hashes: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """Return the hash of the whole key of so many rows, from those of its hash columns."""
    whole = np.zeros(rows, dtype=np.int64)
    for column in hashes:
        whole = whole * np.int64(31) + column
    return whole


def home_indexes(hashes: np.ndarray, buckets: int) -> np.ndarray:
    """Return the index of each key's home bucket."""
    return (hashes % buckets).astype(np.uint16)


def split_by_bucket(table: pa.Table, indexes: np.ndarray, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield (bucket index, rows) for each bucket with rows; the order within a bucket is kept."""
    if table.num_rows == 0:
        return
    if buckets == 1:
        yield 0, table
        return
    order = np.argsort(indexes, kind="stable")
    counts = np.bincount(indexes, minlength=buckets)
    by_bucket = table.combine_chunks().take(order)
    start = 0
    for index, count in enumerate(counts.tolist()):
        if count:
            yield index, by_bucket.slice(start, count)
        start += count


def bucket_numbers(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return numbers for buckets that Spark's hash partitioning spreads evenly over its shuffle partitions.

    Spark places a row with grouping key n in partition ``pmod(murmur3(n), partitions)``, where 0 and 1 may collide.
    Numbers are chosen in ascending order, such that bucket i lies in partition i modulo ``partitions``.
    """
    found: list[int] = []
    for index in range(buckets):
        number = found[-1] + 1 if found else 0
        while murmur3_int(number) % partitions != index % partitions:
            number += 1
        found.append(number)
    return tuple(found)


def murmur3_int(value: int, seed: int = 42) -> int:
    """Return Spark's hash of an INT column: Murmur3 x86 32-bit, signed."""
    k = value * 0xCC9E2D51 & 0xFFFFFFFF
    k = (k << 15 | k >> 17) & 0xFFFFFFFF
    k = k * 0x1B873593 & 0xFFFFFFFF
    h = seed ^ k
    h = (h << 13 | h >> 19) & 0xFFFFFFFF
    h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4  # length in bytes
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h
