"""The cache: bounds on rows and age, eviction, keys without rows, and memory that it keeps."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.lookup.tables import SCHEMA, Now, rows
from watersmeet.lookup.cache import LookupCache, cache_of


def put(cache: LookupCache, now: Now, **counts: int) -> None:
    """Remember keys k1, k2, … with so many rows each."""
    numbers = [int(name[1:]) for name in counts]
    ids = [number for number, count in zip(numbers, counts.values(), strict=True) for _ in range(count)]
    found = pa.table([ids, [f"row {i}" for i in range(len(ids))]], schema=SCHEMA)
    cache.put([(number,) for number in numbers], found, list(counts.values()), now())


def hits(cache: LookupCache, *numbers: int) -> list[int]:
    _, missing = cache.get([(number,) for number in numbers])
    return [number for place, number in enumerate(numbers) if place not in missing]


def test_rows_of_several_keys_come_back() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 10, 60, now)
    put(cache, now, k1=2, k2=1)
    put(cache, now, k3=1)
    found, missing = cache.get([(3,), (4,), (1,)])
    assert rows(found) == [(1, "row 0"), (1, "row 1"), (3, "row 0")]
    assert missing == [1]


def test_a_key_without_rows_is_known_too() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 10, 60, now)
    put(cache, now, k1=0)
    found, missing = cache.get([(1,)])
    assert (found.num_rows, missing, cache.size) == (0, [], 1)


def test_rows_are_forgotten_at_their_age_and_so_are_keys_without_rows() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 10, 60, now)
    put(cache, now, k1=1, k2=0)
    now.time = 59.9
    assert hits(cache, 1, 2) == [1, 2]
    now.time = 60.0
    assert hits(cache, 1, 2) == []
    assert cache.size == 0


def test_being_asked_for_makes_no_row_younger() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 10, 60, now)
    put(cache, now, k1=1)
    now.time = 50
    assert hits(cache, 1) == [1]
    now.time = 70
    assert hits(cache, 1) == []


def test_the_key_not_asked_for_longest_goes_first() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 3, 60, now)
    put(cache, now, k1=1, k2=1, k3=1)
    assert hits(cache, 1) == [1]
    put(cache, now, k4=1)
    assert hits(cache, 1, 2, 3, 4) == [1, 3, 4]


def test_a_key_counts_as_many_rows_as_it_has() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 3, 60, now)
    put(cache, now, k1=1, k2=2)
    put(cache, now, k3=2)
    assert hits(cache, 1, 2, 3) == [3]


def test_a_key_with_more_rows_than_the_bound_is_not_kept_and_pushes_nobody_out() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 3, 60, now)
    put(cache, now, k1=1)
    put(cache, now, k2=4, k3=1)
    assert hits(cache, 1, 2, 3) == [1, 3]


def test_without_rows_nothing_is_kept() -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 0, 60, now)
    put(cache, now, k1=1, k2=0)
    assert hits(cache, 1, 2) == []


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 4), st.integers(0, 30)), max_size=60))
def test_it_never_holds_more_than_twice_its_bound_and_never_gives_wrong_rows(steps: list[tuple[int, int, int]]) -> None:
    now = Now()
    cache = LookupCache(SCHEMA, 8, 60, now)
    truth: dict[int, list[tuple[int, str]]] = {}
    for step, (key, count, later) in enumerate(steps):
        now.time += later
        found, missing = cache.get([(key,)])
        if missing:
            truth[key] = [(key, f"{step}.{i}") for i in range(count)]
            table = pa.table([[key] * count, [name for _, name in truth[key]]], schema=SCHEMA)
            cache.put([(key,)], table, [count], now())
        else:
            assert rows(found) == sorted(truth[key], key=repr)
        assert cache.size <= 8
        assert cache._stored <= 16


def test_a_process_lets_go_of_caches_whose_rows_are_all_too_old() -> None:
    now = Now()
    first = cache_of("first", lambda: LookupCache(SCHEMA, 10, 60, now), now)
    now.time = 59
    assert cache_of("first", lambda: LookupCache(SCHEMA, 10, 60, now), now) is first
    cache_of("second", lambda: LookupCache(SCHEMA, 10, 60, now), now)
    now.time = 120
    cache_of("third", lambda: LookupCache(SCHEMA, 10, 60, now), now)
    assert cache_of("first", lambda: LookupCache(SCHEMA, 10, 60, now), now) is not first
