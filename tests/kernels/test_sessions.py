"""Sessions against the same over all rows: what is final after each step is out, once, and the rest is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.support.kept_rows import kept_rows
from tests.support.session_reference import Row, sessions_of
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.kernels.changelog import stored_rows
from watersmeet.testing.harness import Harness, StepInput, load_script

COLUMNS = ("id", "k", "x", "ts")
END = [Event(EventKind.END)]


@dataclass(frozen=True)
class Query:
    """The rows of sessions; ``above`` is a bound of x for rows below them, ``shown_above`` one for their results."""

    keyed: bool = True
    gap: int = 3
    delay: int = 0
    above: int | None = None
    shown_above: int | None = None

    @property
    def sql(self) -> str:
        rows = "a" if self.above is None else f"(SELECT * FROM a WHERE x > {self.above})"
        partition = " PARTITION BY k" if self.keyed else ""
        where = "" if self.shown_above is None else f" WHERE x > {self.shown_above}"
        return (
            "CREATE STREAM a (id INT, k STRING, x INT, ts BIGINT, WATERMARK FOR ts AS ts - "
            f"{self.delay}) WITH (event_time_unit = 'row');"
            "SELECT id, k, x, ts, window_start, window_end "
            f"FROM SESSION(TABLE {rows}{partition}, DESCRIPTOR(ts), {self.gap}){where};"
        )

    def sessions(self, rows: Sequence[Row]) -> list[tuple[Row, int, int]]:
        """The rows that are in sessions, with the bounds of these."""
        within = [row for row in rows if self.above is None or (row["x"] is not None and row["x"] > self.above)]
        return sessions_of(within, lambda row: row["k"] if self.keyed else None, self.gap)

    def is_shown(self, row: Row) -> bool:
        return self.shown_above is None or (row["x"] is not None and row["x"] > self.shown_above)


class Run:
    """A query, the rows that it has taken, and its results so far; each step is compared with the reference."""

    def __init__(self, query: Query, *, buckets: int = 1, small: bool = False) -> None:
        self.query = query
        self.harness = Harness(*load_script(query.sql), buckets=buckets, max_step_bytes=1 if small else None)
        self.taken: list[Row] = []
        self.total: Counter[Any] = Counter()
        self.frontier: int | None = None

    def step(self, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Feed rows; return the results."""
        fed = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        self.taken += [row for row in fed if self.frontier is None or row["ts"] >= self.frontier]
        if fed:
            newest = max(row["ts"] for row in fed) - self.query.delay
            self.frontier = newest if self.frontier is None else max(newest, self.frontier)
        return self._check(self.harness.step({"a": StepInput(rows)}).changes, ended=False)

    def end(self) -> list[Any]:
        """End the input; return the results."""
        return self._check(self.harness.step({}, END).changes, ended=True)

    def _check(self, changes: Sequence[tuple[int, Any]], *, ended: bool) -> list[Any]:
        assert all(weight == 1 for weight, _ in changes)
        self.total.update(row for _, row in changes)
        found = self.query.sessions(self.taken)
        final = [each for each in found if ended or (self.frontier is not None and each[2] < self.frontier)]
        shown = [(*(row[name] for name in COLUMNS), *bounds) for row, *bounds in final if self.query.is_shown(row)]
        assert self.total == Counter(shown), self.query.sql
        kept = [row["=a:id"] for row in kept_rows(self.harness).get("rows", ())]
        assert Counter(kept) == Counter(each[0]["id"] for each in found if each not in final), self.query.sql
        return sorted(row for _, row in changes)


def test_a_row_at_the_end_of_a_session_continues_it_and_the_frontier_there_does_not_end_it() -> None:
    run = Run(Query(gap=3))
    assert run.step([(1, "u", 0, 1), (2, "v", 0, 4)]) == []  # F = 4 is the end of u's session
    assert run.step([(3, "u", 0, 4), (4, "v", 0, 8)]) == [
        (1, "u", 0, 1, 1, 7),
        (2, "v", 0, 4, 4, 7),
        (3, "u", 0, 4, 1, 7),
    ]
    assert run.end() == [(4, "v", 0, 8, 8, 11)]


ROWS = st.tuples(st.sampled_from(["u", "v", None]), st.sampled_from([None, 0, 1, 2]), st.integers(0, 14))


@settings(max_examples=200 if ALL else 5)
@given(
    query=st.builds(
        Query,
        keyed=st.booleans(),
        gap=st.integers(1, 5),
        delay=st.integers(0, 6),
        above=st.sampled_from([None, None, 0]),
        shown_above=st.sampled_from([None, None, 0]),
    ),
    steps=st.lists(st.tuples(st.lists(ROWS, max_size=6), st.booleans()), min_size=1, max_size=7),
    buckets=st.sampled_from([1, 3]),
    small=st.booleans(),
    dead=st.sampled_from([1, stored_rows.MIN_DEAD]),
)
def test_the_rows_of_a_session_come_once_when_it_is_final_and_are_kept_until_then(
    query: Query, steps: list[tuple[list[Any], bool]], buckets: int, small: bool, dead: int
) -> None:
    run, number = Run(query, buckets=buckets, small=small), 0
    with patch.object(stored_rows, "MIN_DEAD", dead):
        for rows, restart in steps:
            fed = []
            for k, x, t in rows:
                number += 1
                fed.append((number, k, x, t + number // 2))  # times move on
            if restart:
                run.harness.restart()
            run.step(fed)
        run.end()
