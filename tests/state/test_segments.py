"""Segments: what is written is read again, in small pieces, under ids that differ by content."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import TIME
from watersmeet.errors import CheckpointError
from watersmeet.state.segments import MAX_CHUNK_BYTES, drop_segment, read_segment, split_by_time, write_segment
from watersmeet.state.store import MemoryStore

times = st.integers(-(2**40), 2**40)


def table(rows: list[tuple[int, str | None]]) -> pa.Table:
    return pa.table(
        {TIME: pa.array([t for t, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.string())}
    )


@given(st.lists(st.tuples(times, st.none() | st.text(max_size=3)), min_size=1, max_size=20))
def test_rows_come_back_as_they_were(rows: list[tuple[int, str | None]]) -> None:
    store = MemoryStore()
    segment = write_segment(store, 7, "left", table(rows))
    assert read_segment(store, segment).equals(table(rows))
    assert (segment.rows, segment.low, segment.high) == (
        len(rows),
        min(t for t, _ in rows),
        max(t for t, _ in rows),
    )
    drop_segment(store, segment)
    assert not store


def test_a_large_segment_is_stored_in_small_values() -> None:
    rows = pa.table({TIME: np.arange(600_000), "v": np.random.default_rng(1).random(600_000)})
    store = MemoryStore()
    segment = write_segment(store, 0, "left", rows)
    assert segment.chunks == len(store) == 3
    assert max(len(value) for value in store.values()) <= MAX_CHUNK_BYTES + 4096
    assert read_segment(store, segment).equals(rows)
    drop_segment(store, segment)
    assert not store


def test_a_slice_of_a_large_table_is_not_stored_whole() -> None:
    rows = pa.table({TIME: np.arange(600_000)}).slice(10, 5)
    store = MemoryStore()
    segment = write_segment(store, 0, "left", rows)
    assert segment.chunks == 1
    assert sum(map(len, store.values())) < 2000


def test_ids_tell_steps_relations_contents_and_orders_apart() -> None:
    one, other = table([(1, "a"), (2, "b")]), table([(2, "b"), (1, "a")])
    store = MemoryStore()
    written = [(1, "left", one), (2, "left", one), (1, "right", one), (1, "left", other)]
    assert len({write_segment(store, *each).id for each in written}) == 4
    assert write_segment(store, 1, "left", one).id == write_segment(MemoryStore(), 1, "left", one).id


def test_a_chunk_that_is_gone_or_has_changed_is_an_error() -> None:
    store = MemoryStore()
    segment = write_segment(store, 0, "left", table([(1, "a")]))
    ((name, payload),) = store.items()
    store[name] = payload.replace(b"a", b"b", 1)  # Arrow would read it
    with pytest.raises(CheckpointError, match="its bytes are not those that were written"):
        read_segment(store, segment)
    store.clear()
    with pytest.raises(CheckpointError, match="chunk 0 is not in the store"):
        read_segment(store, segment)


@given(
    st.lists(st.one_of(times, st.integers(-30, 30)), max_size=40),
    st.none() | st.integers(1, 50),
    st.integers(2, 20),
)
def test_a_cut_by_time_keeps_every_row_in_few_pieces_that_do_not_overlap(
    at: list[int], width: int | None, most: int
) -> None:
    rows = table([(t, str(i)) for i, t in enumerate(at)])
    pieces = split_by_time(rows, width, most=most, few=0)
    assert len(pieces) <= (most if width is not None else 1)
    assert all(piece.num_rows for piece in pieces)
    found = [row for piece in pieces for row in piece.to_pylist()]
    assert sorted(row["v"] for row in found) == sorted(map(str, range(len(at))))
    assert {row["v"]: row[TIME] for row in found} == {str(i): t for i, t in enumerate(at)}
    ranges = [(min(each[TIME].to_pylist()), max(each[TIME].to_pylist())) for each in pieces]
    assert all(high < low for (_, high), (low, _) in pairwise(ranges))
