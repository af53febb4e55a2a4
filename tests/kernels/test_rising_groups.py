"""EMIT FINAL by a function that rises with the event time: each group once, when no row of it can come any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ALL
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.kernels.changelog import stored_rows
from watersmeet.testing.harness import Harness, StepInput, load_script
from watersmeet.testing.rig import StepOutcome

END = [Event(EventKind.END)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Key = Callable[[Any], Any]


def _quotient(x: int, by: int) -> int:
    """Spark's DIV: what follows the point is dropped."""
    return abs(x) // by * (1 if x >= 0 else -1)


#: By SQL over the time: the key of a row, from its time.
OF_NUMBERS: dict[str, Key] = {
    "ts": lambda t: t,
    "ts DIV 4": lambda t: _quotient(t, 4),
    "ts - ts % 3": lambda t: _quotient(t, 3) * 3,
    "(ts + 5) DIV 4 * 2": lambda t: _quotient(t + 5, 4) * 2,
    "CAST(ts - 1 AS BIGINT) DIV 7": lambda t: _quotient(t - 1, 7),
    "3 * ts DIV 5": lambda t: _quotient(3 * t, 5),
}
OF_INSTANTS: dict[str, Key] = {
    "date_trunc('HOUR', ts)": lambda t: t.replace(minute=0, second=0),
    "date_trunc('WEEK', ts)": lambda t: t.replace(hour=0, minute=0, second=0) - timedelta(days=t.weekday()),
    "date_trunc('MONTH', ts - INTERVAL '36' HOURS)": lambda t: (t - timedelta(hours=36)).replace(
        day=1, hour=0, minute=0, second=0
    ),
    "CAST(ts AS DATE)": lambda t: t.date(),
    "trunc(ts, 'QUARTER')": lambda t: t.date().replace(month=(t.month - 1) // 3 * 3 + 1, day=1),
    "year(ts)": lambda t: t.year,
    "unix_seconds(ts) DIV 3600": lambda t: int((t - EPOCH).total_seconds()) // 3600,
}


@dataclass(frozen=True)
class Query:
    """Counts and sums by a key, and by k if ``by_k``; of instants, rows are so many half hours after 2024 begins."""

    key: str
    by_k: bool = False
    delay: int = 0

    @property
    def of_instants(self) -> bool:
        return self.key in OF_INSTANTS

    @property
    def sql(self) -> str:
        kind = "TIMESTAMP" if self.of_instants else "BIGINT"
        unit = "" if self.of_instants else " WITH (event_time_unit = 'row')"
        late = f"INTERVAL '{self.delay * 30}' MINUTES" if self.of_instants else str(self.delay)
        more = ", k" if self.by_k else ""
        return (
            f"CREATE STREAM a (k INT, ts {kind}, WATERMARK FOR ts AS ts - {late}){unit};"
            f"SELECT {self.key} AS g, count(*) AS n, sum(k) AS s{more} FROM a GROUP BY {self.key}{more} EMIT FINAL;"
        )

    def time(self, place: int) -> Any:
        return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * place) if self.of_instants else place

    def key_of(self, place: int) -> Any:
        return (OF_INSTANTS if self.of_instants else OF_NUMBERS)[self.key](self.time(place))


class Run:
    """A query and its results so far; each step is compared with all groups of the rows so far that have ended."""

    def __init__(self, query: Query, *, buckets: int = 1) -> None:
        self.query = query
        self.harness = Harness(*load_script(query.sql), buckets=buckets)
        self.taken: list[tuple[int, int]] = []
        self.total: Counter[Any] = Counter()
        self.frontier: int | None = None

    def step(self, rows: Sequence[tuple[int, int]]) -> None:
        """Feed rows (k, place in time)."""
        self.taken += [row for row in rows if not self._has_ended(row[1])]
        if rows:
            newest = max(place for _, place in rows) - self.query.delay
            self.frontier = newest if self.frontier is None else max(newest, self.frontier)
        self._check(self.harness.step({"a": StepInput([(k, self.query.time(place)) for k, place in rows])}))

    def end(self) -> None:
        """End the input."""
        found = self.harness.step({}, END)
        self.frontier = 2**31 if not self.query.of_instants else 20_000 * 48  # beyond all rows
        self._check(found)

    def _has_ended(self, place: int) -> bool:
        return self.frontier is not None and self.query.key_of(self.frontier) > self.query.key_of(place)

    def _check(self, outcome: StepOutcome) -> None:
        assert all(weight == 1 for weight, _ in outcome.changes)
        self.total.update(row for _, row in outcome.changes)
        groups: dict[Any, list[tuple[int, int]]] = {}
        for k, place in self.taken:
            groups.setdefault((self.query.key_of(place), *([k] if self.query.by_k else [])), []).append((k, place))
        ended = {key: rows for key, rows in groups.items() if self._has_ended(rows[0][1])}
        wanted = [(key[0], len(rows), sum(k for k, _ in rows), *key[1:]) for key, rows in ended.items()]
        assert Counter(map(_plain, self.total.elements())) == Counter(map(_plain, wanted)), self.query.sql
        is_any_open, kept = len(groups) > len(ended), outcome.count("state_rows")
        assert (kept > 0) is is_any_open, "an ended group is kept, or an open one is lost"


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in row)


@settings(max_examples=300 if ALL else 12)
@given(
    query=st.builds(
        Query,
        key=st.sampled_from([*OF_NUMBERS, *OF_INSTANTS]),
        by_k=st.booleans(),
        delay=st.integers(0, 6),
    ),
    steps=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 2), st.integers(-12, 60)), max_size=6), st.booleans()),
        min_size=1,
        max_size=7,
    ),
    stride=st.sampled_from([1, 1, 17, 400]),
    buckets=st.sampled_from([1, 3]),
)
def test_a_group_comes_once_when_the_function_exceeds_it(
    query: Query, steps: list[tuple[list[tuple[int, int]], bool]], stride: int, buckets: int
) -> None:
    with patch.object(stored_rows, "MIN_DEAD", 1):
        run = Run(query, buckets=buckets)
        for rows, restarts in steps:
            run.step([(k, place * stride if query.of_instants else place) for k, place in rows])
            if restarts:
                run.harness.restart()
        run.end()


@pytest.mark.parametrize("key", [*OF_NUMBERS, *OF_INSTANTS])
def test_a_row_counts_until_the_last_moment_of_its_group(key: str) -> None:
    query = Query(key)
    last = next(place for place in range(20_000) if query.key_of(place) < query.key_of(place + 1))
    first = next(place for place in range(last, -50_000, -1) if query.key_of(place - 1) < query.key_of(last))
    run = Run(query)
    run.step([(1, last)])
    run.step([(2, first), (4, first - 1)])
    assert run.taken == [(1, last), (2, first)]
    run.step([(8, last + 1)])
    assert sum(run.total.values()) == 1


@pytest.mark.parametrize("key", [*OF_NUMBERS, *OF_INSTANTS])
def test_each_function_closes_groups(key: str) -> None:
    run = Run(Query(key))
    run.step([(1, -3), (2, 0), (4, 1)])
    run.step([(1, 40_000)])
    run.step([(1, 2)])  # late
    run.end()
    assert len(run.taken) == 4
