"""The index by key finds every row of a hash, wherever runs were merged and whatever has been removed."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.state import key_index
from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.state.key_hashes import key_hashes
from watersmeet.state.key_index import KeyIndex

# hashes with equal prefixes, and some that differ only in bits that the index drops
HASHES = [high << shift | low for high in (0, 1, 2, 7) for shift in (61, 40, 32) for low in (0, 5)]
BLOCKS = st.lists(st.lists(st.sampled_from(HASHES), min_size=1, max_size=12), min_size=1, max_size=12)


def hashes_of(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


@pytest.mark.parametrize("budget", [0, 200, 1 << 20], ids=["in files", "in both", "in memory"])
@pytest.mark.parametrize("max_merged", [0, 20, 1_000])
@given(blocks=BLOCKS, data=st.data())
def test_all_rows_of_a_hash_are_found_and_none_that_was_removed(
    max_merged: int, budget: int, blocks: list[list[int]], data: st.DataObject
) -> None:
    index = KeyIndex(left := ArrowBudget(budget))
    held: dict[int, list[int]] = {}
    first = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "FAN_IN", 2)
        patch.setattr(key_index, "MAX_MERGED", max_merged)
        patch.setattr(key_index, "_AT_ONCE", 2)
        for block in blocks:
            index.add(first, hashes_of(block))
            held[first] = block
            first += len(block) + data.draw(st.integers(0, 2))
            if data.draw(st.booleans()):
                gone = data.draw(st.sampled_from(sorted(held)))
                index.remove(gone)
                del held[gone]
            drawn = data.draw(st.lists(st.sampled_from(HASHES), max_size=5))
            within = data.draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
            wanted = {each >> 32 for each in drawn}
            expected = [at + n for at in within for n, each in enumerate(held[at]) if each >> 32 in wanted]
            found = index.find(hashes_of(drawn), within, 1_000)
            assert found is not None
            assert found.tolist() == sorted(expected)
            assert index.find(hashes_of(drawn), within, len(expected) - 1) is None
            assert index.blocks == held.keys()
    index.close()
    assert left.take(budget)  # all of it has been given back


def test_rows_that_are_too_many_are_not_counted() -> None:
    index = KeyIndex(ArrowBudget(1 << 20))
    index.add(0, hashes_of([1 << 40] * 90 + [number << 50 for number in range(10)]))
    assert index.find(hashes_of([1 << 40]), [0], 90) is not None
    assert index.find(hashes_of([1 << 40]), [0], 89) is None
    assert index.find(hashes_of([1 << 40]), [0], 2) is None
    assert index.find(hashes_of([1 << 40]), [], 0) is not None  # entries of other blocks do not count


def test_entries_of_what_was_left_out_go_in_time() -> None:
    """As a window slides, an index holds little more than the rows in it."""
    index = KeyIndex(ArrowBudget(1 << 20))
    random = np.random.default_rng(1)
    block, window = 1_000, 40
    for number in range(400):
        index.add(number * block, random.integers(0, 2**64, block, dtype=np.uint64))
        if number >= window:
            index.remove((number - window) * block)
        assert sum(len(run.entries) for run in index._runs) <= 2 * (window + 1) * block
        assert len(index._runs) <= 12


@pytest.mark.parametrize(
    ("stored", "probed"),
    [
        (pa.array([1, -1, 0, None, 2**62], pa.int64()), pa.array([1, -1, 0, None, 2**62], pa.int64())),
        (pa.array([1, -1, 127], pa.int8()), pa.array([1, -1, 127], pa.int64())),
        (pa.array([0.0, float("nan"), None]), pa.array([-0.0, float("-nan"), None])),
        (pa.array(["", "a", None, "x" * 50]), pa.array(["", "a", None, "x" * 50], pa.large_string())),
        (pa.array([b"\0", None], pa.binary()), pa.array([b"\0", None], pa.binary())),
    ],
    ids=["integers", "of two widths", "floats", "texts", "bytes"],
)
def test_what_is_equal_has_one_hash(stored: pa.Array, probed: pa.Array) -> None:
    connection = duckdb.connect()
    hashes = [key_hashes(connection, pa.table({"k": each})) >> np.uint64(32) for each in (stored, probed)]
    assert (hashes[0] == hashes[1]).all()
    assert len(set(hashes[0].tolist())) == len(stored)


def test_hashes_are_of_all_columns_whatever_their_names() -> None:
    connection = duckdb.connect()
    one, two = pa.array([1, 1, 2]), pa.array([1, 2, 1])
    for texts in (False, True):
        columns = [each.cast(pa.string()) if texts else each for each in (one, two)]
        hashes = key_hashes(connection, pa.table(columns, names=["k", "k"]))
        assert len(set(hashes.tolist())) == 3
        assert (hashes == key_hashes(connection, pa.table(columns, names=["place", "key_0"]))).all()
