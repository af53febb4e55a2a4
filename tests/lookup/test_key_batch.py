"""One batch of keys: one query for what the cache lacks, and what happens when the table is down."""

from __future__ import annotations

import pytest

from tests.lookup.tables import SCHEMA, FakeTable, Now, keys, rows
from watersmeet.errors import ConnectorError
from watersmeet.lookup.cache import LookupCache
from watersmeet.lookup.key_batch import Answer, look_up
from watersmeet.lookup.retry import OnError, RetryPolicy, with_retries
from watersmeet.lookup.source import UnavailableError


class Lookup:
    """A lookup with its cache."""

    def __init__(self, table: FakeTable, on_error: OnError = OnError.FAIL, retries: int = 3, cache_rows: int = 100):
        self.table, self.now = table, Now()
        self.policy = RetryPolicy(retries, on_error, first_pause=0)
        self.cache = LookupCache(SCHEMA, cache_rows, 60, self.now)

    def __call__(self, *values: int) -> Answer:
        return look_up(keys(*values), self.table, self.policy, self.cache, self.now)


def test_one_query_asks_for_all_keys_that_the_cache_lacks() -> None:
    look = Lookup(FakeTable((1, "one"), (2, "two"), (2, "zwei")))
    assert rows(look(1, 2, 3).rows) == [(1, "one"), (2, "two"), (2, "zwei")]
    again = look(2, 3, 4)
    assert rows(again.rows) == [(2, "two"), (2, "zwei")]
    assert look.table.asked == [[1, 2, 3], [4]]
    assert (again.hits, again.misses, again.queries, again.fetched) == (2, 1, 1, 0)


def test_nothing_is_asked_where_nothing_is_missing() -> None:
    look = Lookup(FakeTable())
    look(1)
    look(1)
    look()
    assert look.table.asked == [[1]]


def test_keys_are_asked_for_in_pieces_where_the_table_takes_no_more() -> None:
    look = Lookup(FakeTable((1, "one"), (5, "five"), max_keys=2))
    assert rows(look(1, 2, 3, 4, 5).rows) == [(1, "one"), (5, "five")]
    assert look.table.asked == [[1, 2], [3, 4], [5]]


def test_a_batch_larger_than_the_cache_is_answered_whole() -> None:
    look = Lookup(FakeTable((1, "one"), (2, "two"), (3, "three")), cache_rows=1)
    assert len(rows(look(1, 2, 3).rows)) == 3


def test_rows_of_other_keys_are_left_out() -> None:
    table = FakeTable((1, "one"))
    table.fetch = lambda keys: FakeTable((1, "one"), (2, "two")).fetch(keys_of_all)  # type: ignore[method-assign]
    keys_of_all = keys(1, 2)
    assert rows(Lookup(table)(1).rows) == [(1, "one")]


def test_a_table_that_comes_back_in_time_is_asked_again() -> None:
    look = Lookup(FakeTable((1, "one")))
    look.table.failures = 3
    assert rows(look(1).rows) == [(1, "one")]
    assert len(look.table.asked) == 4


def test_fail_stops_after_the_last_retry_and_can_be_resumed() -> None:
    look = Lookup(FakeTable((1, "one")))
    look.table.failures = 4
    with pytest.raises(ConnectorError, match="lookup in table fake failed after 4 attempts: down") as error:
        look(1)
    assert "nothing was lost" in str(error.value)
    assert rows(look(1).rows) == [(1, "one")]


def test_null_takes_keys_as_not_found_and_does_not_remember_that() -> None:
    look = Lookup(FakeTable((1, "one"), (2, "two"), max_keys=1), OnError.NULL, retries=1)
    look(1)
    look.table.failures = 2
    answer = look(1, 2, 3)
    assert rows(answer.rows) == [(1, "one")]
    assert rows(answer.failed) == [(2,), (3,)]
    assert answer.queries == 2, "the keys of the next query are not tried with a table that is down"
    assert rows(look(1, 2, 3).rows) == [(1, "one"), (2, "two")]


def test_retry_never_gives_up() -> None:
    look = Lookup(FakeTable((1, "one")), OnError.RETRY)
    look.table.failures = 50
    assert rows(look(1).rows) == [(1, "one")]


def test_pauses_double_up_to_a_bound_and_half_of_each_is_chance() -> None:
    slept: list[float] = []

    def attempt() -> None:
        if len(slept) < 9:
            raise UnavailableError

    with_retries(attempt, RetryPolicy(on_error=OnError.RETRY, first_pause=1, longest_pause=10), "t", slept.append)
    for pause, most in zip(slept, [1, 2, 4, 8, 10, 10, 10, 10, 10], strict=True):
        assert most / 2 <= pause <= most
