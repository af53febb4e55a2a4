"""Buckets: equal keys meet, numbers spread evenly over Spark's partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine.routing import bucket_numbers, home_indexes, key_hashes, murmur3_int, split_by_bucket

longs = st.none() | st.integers(-(2**63), 2**63 - 1)


def homes(rows: pa.Table, hashes: tuple[str, ...], buckets: int) -> np.ndarray:
    return home_indexes(key_hashes(rows, hashes), buckets)


def table(rows: list[tuple[int | None, int | None]]) -> pa.Table:
    return pa.table(
        {
            "a": pa.array([a for a, _ in rows], pa.int64()),
            "b": pa.array([b for _, b in rows], pa.int64()),
            "n": pa.array(range(len(rows)), pa.int64()),
        }
    )


@given(st.lists(st.tuples(longs, longs), max_size=30), st.integers(1, 9), st.sampled_from([("a",), ("a", "b")]))
def test_every_row_goes_to_one_bucket_and_equal_keys_to_the_same(
    rows: list[tuple[int | None, int | None]], buckets: int, hashes: tuple[str, ...]
) -> None:
    whole = table(rows)
    of_row = {}
    for index, part in split_by_bucket(whole, homes(whole, hashes, buckets), buckets):
        assert 0 <= index < buckets
        assert part["n"].to_pylist() == sorted(part["n"].to_pylist()), "order within a bucket is kept"
        for n in part["n"].to_pylist():
            assert n not in of_row
            of_row[n] = index
    assert len(of_row) == len(rows)
    by_key: dict[tuple[int | None, ...], int] = {}
    for n, row in enumerate(rows):
        assert by_key.setdefault(row[: len(hashes)], of_row[n]) == of_row[n]


@given(st.lists(st.tuples(longs, longs), min_size=1, max_size=10), st.integers(2, 9))
def test_a_row_goes_to_the_same_bucket_whatever_comes_with_it(
    rows: list[tuple[int | None, int | None]], buckets: int
) -> None:
    together = homes(table(rows), ("a", "b"), buckets).tolist()
    alone = [homes(table([row]), ("a", "b"), buckets).tolist()[0] for row in rows]
    assert together == alone


def test_chunked_columns_are_split_alike() -> None:
    rows: list[tuple[int | None, int | None]] = [(i * 7919, None if i % 3 else i) for i in range(50)]
    chunked = pa.concat_tables([table(rows[:20]), table(rows[20:])])
    assert homes(chunked, ("a", "b"), 5).tolist() == homes(table(rows), ("a", "b"), 5).tolist()


def test_without_keys_all_rows_share_the_first_bucket() -> None:
    whole = table([(1, 2), (3, 4)])
    ((index, rows),) = split_by_bucket(whole, homes(whole, (), 5), 5)
    assert (index, rows.num_rows) == (0, 2)


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 8, 200])
@pytest.mark.parametrize("buckets", [1, 2, 8, 13])
def test_bucket_numbers_spread_evenly_over_partitions(buckets: int, partitions: int) -> None:
    numbers = bucket_numbers(buckets, partitions)
    assert len(set(numbers)) == buckets
    assert list(numbers) == sorted(numbers)
    places = [murmur3_int(number) % partitions for number in numbers]
    load = [places.count(partition) for partition in set(places)]
    assert len(load) == min(buckets, partitions)
    assert max(load) - min(load) <= 1


# SELECT hash(CAST(n AS INT)) in Spark 4.3
SPARK = {
    0: 933211791,
    1: -559580957,
    2: 1765031574,
    42: 29417773,
    -1: -1604776387,
    10**6: -2101434080,
    2**31 - 1: 133916647,
    -(2**31): 723455942,
}


@pytest.mark.parametrize(("value", "hashed"), SPARK.items())
def test_murmur3_is_sparks(value: int, hashed: int) -> None:
    assert murmur3_int(value) == hashed
