"""Window functions in the order of event time, with final results, against the same over whole partitions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.kept_rows import kept_rows
from tests.support.over_reference import Call, value_of
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.testing.harness import Harness, StepInput, load_script

RANKS = ("row_number", "rank", "dense_rank")
BOUNDED = ("count_all", "count", "sum", "avg", "min", "max", "first_value", "last_value")


@dataclass(frozen=True)
class Query:
    """Functions over one partition and one order; ``limit`` is on the first, a rank."""

    calls: tuple[Call, ...]
    partitioned: bool
    by: str  # a further term of the order, or none
    limit: int | None
    delay: int

    @property
    def sql(self) -> str:
        over = f"{'PARTITION BY k ' if self.partitioned else ''}ORDER BY ts{f', {self.by}' if self.by else ''}"
        calls = ", ".join(f"{call.sql(over)} AS v{number}" for number, call in enumerate(self.calls))
        limit = "" if self.limit is None else f" QUALIFY v0 <= {self.limit}"
        return (
            "CREATE STREAM a (id INT, k STRING, x INT, ts BIGINT, WATERMARK FOR ts AS ts - "
            f"{self.delay}) WITH (event_time_unit = 'row');"
            f"SELECT id, k, x, ts, {calls} FROM a{limit} EMIT FINAL;"
        )

    def place(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        x = (row["x"] is not None, row["x"] or 0)
        return (row["ts"], *((-x[0], -x[1]) if self.by == "x DESC" else x if self.by else ()))

    def answer(self, rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
        """All results of rows, each with its time."""
        found = {}
        for group in self.groups(rows):
            for at, row in enumerate(group):
                values = [value_of(call, group, at, self.place, "ts") for call in self.calls]
                if self.limit is None or values[0] <= self.limit:
                    found[(row["id"], row["k"], row["x"], row["ts"], *values)] = row["ts"]
        return found

    def groups(self, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """The rows of each partition, in order."""
        reads_x = any(call.function not in (*RANKS, "count_all") for call in self.calls)
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(row["k"] if self.partitioned else 0, []).append(row)
        for group in groups.values():
            # rows in one place follow each other by what the functions read, then by what is selected
            group.sort(key=lambda r: (self.place(r), (r["x"] is not None, r["x"] or 0) if reads_x else 0, r["id"]))
        return list(groups.values())

    def kept(self, rows: list[dict[str, Any]], frontier: float) -> dict[str, Counter[int]]:
        """The ids of the rows that the state must hold, and how many rows of running values (by 0)."""
        bounded = [call for call in self.calls if call.start is not None]
        times_back = max([-call.start for call in bounded if not call.rows and call.start is not None], default=0)
        rows_back = max([-call.start for call in bounded if call.rows and call.start is not None], default=0)
        rows_back = max([rows_back, *(call.offset for call in self.calls if call.function == "lag")])
        is_running = any(
            call.function in RANKS or (call.start is None and call.function not in ("lag", "last_value"))
            for call in self.calls
        )
        final = self.groups([row for row in rows if row["ts"] < frontier])
        return {
            "rows": Counter(row["id"] for row in rows if row["ts"] >= frontier - times_back),
            "last": Counter(row["id"] for group in final for row in group[max(len(group) - rows_back, 0) :]),
            "running": Counter({0: len(final) if is_running else 0}),
        }


@st.composite
def calls(draw: st.DrawFn, *, has_ties: bool) -> Call:
    kind = draw(st.sampled_from(["rows", "running", "rank", "lag", "range"]))
    if kind == "rank":
        return Call(draw(st.sampled_from(RANKS)))
    if kind == "lag":
        return Call("lag", offset=draw(st.integers(0, 3)))
    function = draw(st.sampled_from(BOUNDED))
    if kind == "running":
        return Call(function, rows=draw(st.booleans()))
    if kind == "range" and has_ties:
        kind = "rows"  # RANGE with a distance takes one term
    end = draw(st.sampled_from([0, 0, -1]))
    return Call(function, rows=kind == "rows", start=end - draw(st.integers(0, 4)), end=end)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    by = draw(st.sampled_from(["", "", "x", "x DESC"]))
    limit = draw(st.sampled_from([None, None, 1, 2]))
    found = draw(st.lists(calls(has_ties=bool(by)), min_size=1, max_size=4))
    if limit is not None:
        found = [Call(draw(st.sampled_from(RANKS))), *found]
    return Query(tuple(found), draw(st.booleans()), by, limit, draw(st.integers(0, 4)))


ROWS = st.tuples(st.sampled_from(["u", "v", None]), st.sampled_from([None, 0, 1, 2, 5]), st.integers(0, 14))


@given(
    query=queries(),
    steps=st.lists(st.tuples(st.lists(ROWS, max_size=6), st.booleans()), min_size=1, max_size=7),
    buckets=st.sampled_from([1, 3]),
    small=st.booleans(),
)
def test_each_row_comes_once_with_the_values_that_it_has_at_the_end(
    query: Query, steps: list[tuple[list[Any], bool]], buckets: int, small: bool
) -> None:
    harness = Harness(*load_script(query.sql), buckets=buckets, max_step_bytes=1 if small else None)
    taken: list[dict[str, Any]] = []
    frontier, emitted, number = None, [], 0
    for rows, restart in steps:
        fed = []
        for k, x, t in rows:
            number += 1
            fed.append((number, k, x, t + number // 3))  # times move on
        if restart:
            harness.restart()
        taken += [
            dict(zip(("id", "k", "x", "ts"), each, strict=True))
            for each in fed
            if frontier is None or each[3] >= frontier
        ]
        outcome = harness.step({"a": StepInput(fed)})
        newest = max((each[3] for each in fed), default=None)
        if newest is not None:
            frontier = max(newest - query.delay, newest - query.delay if frontier is None else frontier)
        emitted.append((frontier, outcome.changes))
        stored = kept_rows(harness)
        found = {
            name: Counter(row.get("=a:id", 0) for row in stored.get(name, ())) for name in ("rows", "last", "running")
        }
        assert found == query.kept(taken, -math.inf if frontier is None else frontier), query.sql
    emitted.append((None, harness.step({}, [Event(EventKind.END)]).changes))
    answer = query.answer(taken)
    total: Counter[Any] = Counter()
    for last, (bound, changes) in zip([False] * len(steps) + [True], emitted, strict=True):
        assert all(weight == 1 for weight, _ in changes)
        total.update(row for _, row in changes)
        final = [row for row, time in answer.items() if last or (bound is not None and time < bound)]
        assert total == Counter(final), query.sql
