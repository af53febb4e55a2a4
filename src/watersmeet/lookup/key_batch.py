"""Look up a batch of keys: in the cache, and by one query for all keys that it misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import ConnectorError
from watersmeet.lookup.cache import Clock, Key, LookupCache
from watersmeet.lookup.retry import OnError, RetryPolicy, with_retries
from watersmeet.lookup.source import LookupSource, UnavailableError


@dataclass(slots=True)
class Answer:
    """The rows found; ``failed`` are keys without a result, because the table could not be reached."""

    rows: pa.Table
    failed: pa.Table
    hits: int = 0
    misses: int = 0
    queries: int = 0
    fetched: int = 0


def look_up(keys: pa.Table, source: LookupSource, policy: RetryPolicy, cache: LookupCache, clock: Clock) -> Answer:
    """Return the rows of distinct keys without NULLs; ``keys`` has the names of the table's columns.

    Raises ``ConnectorError`` where the table cannot be reached and the policy is to fail.
    """
    wanted = _tuples(keys)
    known, missing = cache.get(wanted)
    answer = Answer(known, keys.slice(0, 0), hits=len(wanted) - len(missing), misses=len(missing))
    found = [known]
    size = source.max_keys or max(len(missing), 1)
    for start in range(0, len(missing), size):
        places = missing[start : start + size]
        asked = keys.take(np.asarray(places, dtype=np.int64))
        at = clock()
        try:
            rows = with_retries(lambda asked=asked: _fetch(source, asked, answer), policy, source.name)  # type: ignore[misc]
        except UnavailableError as error:
            if policy.on_error is not OnError.NULL:
                raise _unreachable(source, error, policy) from None
            answer.failed = keys.take(np.asarray(missing[start:], dtype=np.int64))
            break
        asked_for = [wanted[place] for place in places]
        rows, counts = _in_order_of(asked_for, rows, keys.column_names)
        cache.put(asked_for, rows, counts, at)
        answer.fetched += rows.num_rows
        found.append(rows)
    answer.rows = pa.concat_tables(found)
    return answer


def _fetch(source: LookupSource, keys: pa.Table, answer: Answer) -> pa.Table:
    answer.queries += 1
    return source.fetch(keys)


def _tuples(table: pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _in_order_of(keys: Sequence[Key], rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """Return the rows of the keys in the order of the keys, and the number of rows per key; drop other rows."""
    place = {key: number for number, key in enumerate(keys)}
    places = np.fromiter((place.get(key, -1) for key in _tuples(rows.select(names))), np.int64, rows.num_rows)
    order = np.argsort(places, kind="stable")
    order = order[np.count_nonzero(places < 0) :]
    counts = np.bincount(places[places >= 0], minlength=len(keys))
    return rows.take(order), counts.tolist()


def _unreachable(source: LookupSource, error: UnavailableError, policy: RetryPolicy) -> ConnectorError:
    return ConnectorError(
        f"the lookup in table {source.name} failed after {policy.max_retries + 1} attempts: {error}",
        hint="nothing was lost: resume the query once the table is back, or set lookup_on_error = 'retry' or 'null'",
    )
