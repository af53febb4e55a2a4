"""A cache of lookup results in one worker process, bounded by rows and by age, and empty after a restart.

One cache serves all buckets that a worker process has of one lookup, in one run of one query. A key without rows is
cached too and counts as one row. Over the bound, the least recently used keys are evicted first.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

#: Returns seconds since any fixed moment.
Clock: TypeAlias = Callable[[], float]
#: The values of one key.
Key: TypeAlias = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class _Chunk:
    """Rows that were fetched together; ``live`` of them still belong to a key."""

    rows: pa.Table
    live: int


@dataclass(slots=True)
class _Entry:
    """The rows of one key."""

    at: float
    chunk: _Chunk
    start: int
    length: int

    @property
    def weight(self) -> int:
        """How many rows of the bound the entry takes."""
        return max(self.length, 1)


class LookupCache:
    """The cache of one lookup."""

    def __init__(self, schema: pa.Schema, max_rows: int, ttl: float, clock: Clock = time.monotonic) -> None:
        self._schema = schema
        self._max_rows = max_rows
        self._clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()  # least recently used first
        self._stored = 0  # rows of all chunks
        self.ttl = ttl
        self.size = 0
        self.used = clock()

    def get(self, keys: Sequence[Key]) -> tuple[pa.Table, list[int]]:
        """Return the rows of the cached keys, and the positions of the keys that are not cached."""
        now = self.used = self._clock()
        hits: list[_Entry] = []
        missing = []
        for place, key in enumerate(keys):
            entry = self._entries.get(key)
            if entry is not None and now - entry.at < self.ttl:
                self._entries.move_to_end(key)
                hits.append(entry)
                continue
            if entry is not None:
                self._drop(key)
            missing.append(place)
        return self._gather(hits), missing

    def put(self, keys: Sequence[Key], rows: pa.Table, counts: Sequence[int], at: float) -> None:
        """Cache the result of a query at time ``at``: rows ordered by key, ``counts[i]`` of them for ``keys[i]``."""
        if self._max_rows == 0:
            return
        chunk = _Chunk(rows, 0)
        start = 0
        for key, length in zip(keys, counts, strict=True):
            if key in self._entries:
                self._drop(key)
            entry = _Entry(at, chunk, start, length)
            start += length
            if entry.weight <= self._max_rows:
                self._entries[key] = entry
                self.size += entry.weight
                chunk.live += length
        if chunk.live:
            self._stored += rows.num_rows
        while self.size > self._max_rows:
            self._drop(next(iter(self._entries)))
        if self._stored > 2 * self._max_rows:
            self._compact()

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self.size -= entry.weight
        entry.chunk.live -= entry.length
        if entry.length and entry.chunk.live == 0:
            self._stored -= entry.chunk.rows.num_rows

    def _gather(self, entries: Sequence[_Entry]) -> pa.Table:
        by_chunk: dict[int, list[_Entry]] = {}
        for entry in entries:
            if entry.length:
                by_chunk.setdefault(id(entry.chunk), []).append(entry)
        parts = []
        for group in by_chunk.values():
            places = np.concatenate([np.arange(entry.start, entry.start + entry.length) for entry in group])
            parts.append(group[0].chunk.rows.take(places))
        return pa.concat_tables(parts) if parts else self._schema.empty_table()

    def _compact(self) -> None:
        """Copy the live rows: one live row keeps its whole chunk in memory."""
        entries = sorted(self._entries.values(), key=lambda entry: id(entry.chunk))
        chunk = _Chunk(self._gather(entries).combine_chunks(), 0)
        for entry in entries:  # in the order in which their rows were gathered
            entry.chunk, entry.start = chunk, chunk.live
            chunk.live += entry.length
        self._stored = chunk.live


_caches: dict[str, LookupCache] = {}


def cache_of(name: str, make: Callable[[], LookupCache], clock: Clock = time.monotonic) -> LookupCache:
    """Return the process's cache of that name, and make it if needed. Drop caches that were unused for their TTL."""
    now = clock()
    for other, cache in list(_caches.items()):
        if other != name and now - cache.used >= cache.ttl:
            del _caches[other]
    if name not in _caches:
        _caches[name] = make()
    return _caches[name]
