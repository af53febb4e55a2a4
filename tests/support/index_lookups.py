"""Index lookups of stored rows where a scan would be as fast: tests have too few rows for lookups otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pytest

from watersmeet.state import key_index, small_segments, working_set
from watersmeet.state.keyed_segments import KeyedSegments

#: The columns of a lookup, and in how many segments it found rows.
Search = tuple[tuple[str, ...], int]


@contextmanager
def always_looked_up() -> Iterator[list[Search]]:
    """Yield all lookups so far; every segment is large, and keys are always looked up."""
    searches: list[Search] = []
    find = KeyedSegments.find

    def counting(
        self: KeyedSegments, by: Sequence[str], probes: pa.Table, segments: Iterable[str], most: int
    ) -> list[pa.Table] | None:
        tables = find(self, by, probes, segments, most)
        searches.append((tuple(by), len(tables or [])))
        return tables

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(working_set, "MIN_PROBED_ROWS", 0)
        patch.setattr(working_set, "ROWS_PER_PROBE", 0)
        patch.setattr(working_set, "ROWS_PER_FOUND", 0.001)
        patch.setattr(small_segments, "SMALL_ROWS", 0)
        patch.setattr(key_index, "FAN_IN", 2)
        patch.setattr(KeyedSegments, "find", counting)
        yield searches
