"""Window functions over partitions that change, against the same over the rows that hold.

After each step the changes add up to the answer, and the rows are kept that can still matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.support.kept_rows import kept_rows
from tests.support.over_reference import Call, value_of
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.kernels.changelog import stored_rows
from watersmeet.testing.harness import Harness, StepInput, load_script

Row = Mapping[str, Any]
COLUMNS = ("id", "k", "x", "y", "ts")
END = [Event(EventKind.END)]
SIZE = 5  # of windows
RANKS = ("row_number", "rank", "dense_rank")


@dataclass(frozen=True)
class Query:
    """Functions over one partition and one order; of a rank, the first of the calls, ``least`` to ``most`` are results.

    Partitions are those of ``k`` (``keyed``), of windows (``windowed``), of both, or there is one.  ``final`` is for
    windows of rows that do not change.
    """

    calls: tuple[Call, ...]
    keyed: bool
    by: tuple[str, ...]
    most: int | None = None
    least: int = 1
    shows_rank: bool = True
    windowed: bool = False
    final: bool = False
    changing: bool = False
    delay: int = 0

    @property
    def sql(self) -> str:
        keys = [*(["window_start"] if self.windowed else []), *(["k"] if self.keyed else [])]
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        over = f"{partition}ORDER BY {', '.join(self.by)}"
        calls = [f"{call.sql(over)} AS v{number}" for number, call in enumerate(self.calls)]
        limit = f" WHERE v0 <= {self.most} AND v0 >= {self.least}" if self.most is not None else ""
        relation = f"TUMBLE(a, ts, {SIZE})" if self.windowed else "a"
        key, mode = (" PRIMARY KEY (id)", " SETTINGS mode = 'changelog_kv'") if self.changing else ("", "")
        return (
            f"CREATE STREAM a (id INT, k STRING, x INT, y INT, ts BIGINT, WATERMARK FOR ts AS ts - {self.delay}){key} "
            f"WITH (event_time_unit = 'row'){mode};"
            f"SELECT {', '.join(self.shown)} FROM (SELECT id, k, x, y, {', '.join(calls)} FROM {relation}){limit} "
            f"EMIT {'FINAL' if self.final else 'CHANGELOG'};"
        )

    @property
    def shown(self) -> list[str]:
        values = [f"v{number}" for number in range(len(self.calls)) if number or self.shows_rank]
        return ["id", "k", "x", "y", *values]

    def end(self, row: Row) -> int:
        """The end of its window."""
        return int(row["ts"] // SIZE * SIZE + SIZE)

    def place(self, row: Row) -> tuple[Any, ...]:
        found = []
        for term in self.by:
            value, descending = row[term.split()[0]], term.endswith("DESC")
            found += [value is not None, value or 0] if not descending else [value is None, -(value or 0)]
        return tuple(found)

    def valued(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """All rows with their values."""
        # rows in one place follow each other by what the functions read, then by what is selected
        reads_x = any(call.function not in (*RANKS, "count_all") for call in self.calls)
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            key = (self.end(row) if self.windowed else None, row["k"] if self.keyed else None)
            groups.setdefault(key, []).append(row)
        found = []
        for group in groups.values():
            group.sort(key=lambda r: (self.place(r), (r["x"] is not None, r["x"] or 0) if reads_x else 0, r["id"]))
            for at, row in enumerate(group):
                values = {f"v{n}": value_of(call, group, at, self.place, "x") for n, call in enumerate(self.calls)}
                found.append({**row, **values})
        return found

    @property
    def reads_behind(self) -> bool:
        """Whether values of the first rows take rows behind them; ROW_NUMBER may divide rows of one place."""
        if self.most is None:
            return False
        divides = self.calls[0].function == "row_number"
        framed = [call for call in self.calls[1:] if call.function not in (*RANKS, "lag")]
        return any(call.end > 0 or (divides and not call.rows) for call in framed)

    def is_result(self, row: Row) -> bool:
        return self.most is None or self.least <= row["v0"] <= self.most

    def is_kept(self, row: Row, frontier: int | None) -> bool:
        """Whether the state must hold a row with its values."""
        if self.windowed and not self.changing and frontier is not None and self.end(row) <= frontier:
            return False
        return self.changing or self.most is None or self.reads_behind or bool(row["v0"] <= self.most)


class Gone(NamedTuple):
    """The retraction of a row, at a time."""

    id: int
    ts: int


class Run:
    """A query, the rows that hold, and its results so far; each step is compared with the reference."""

    def __init__(self, query: Query, *, buckets: int = 1, small: bool = False) -> None:
        self.query = query
        self.harness = Harness(*load_script(query.sql), buckets=buckets, max_step_bytes=1 if small else None)
        self.rows: dict[int, dict[str, Any]] = {}
        self.total: Counter[Any] = Counter()
        self.frontier: int | None = None

    def step(self, *changes: tuple[Any, ...] | Gone) -> list[tuple[int, Any]]:
        """Feed rows and retractions; return the changes of the results."""
        fed: list[tuple[Any, ...]] = []
        for change in changes:
            if isinstance(change, Gone):
                fed.append((*(self.rows.pop(change.id) | {"ts": change.ts}).values(), -1))
                continue
            fed.append((*change, 1) if self.query.changing else change)
            row = dict(zip(COLUMNS, change, strict=True))
            if not self._is_late(row):
                self.rows[row["id"]] = row
        if fed:
            newest = max(row[4] for row in fed) - self.query.delay
            self.frontier = newest if self.frontier is None else max(newest, self.frontier)
        return self._check(self.harness.step({"a": StepInput(fed)}).changes, ended=False)

    def end(self) -> list[tuple[int, Any]]:
        """End the input; return the changes of the results."""
        return self._check(self.harness.step({}, END).changes, ended=True)

    def _is_late(self, row: Row) -> bool:
        query = self.query
        return query.windowed and not query.changing and self.frontier is not None and query.end(row) <= self.frontier

    def _check(self, changes: Sequence[tuple[int, Any]], *, ended: bool) -> list[tuple[int, Any]]:
        query = self.query
        for weight, row in changes:
            self.total[row] += weight
        valued = query.valued(list(self.rows.values()))
        results = [row for row in valued if query.is_result(row)]
        if query.final and not ended:
            results = [row for row in results if self.frontier is not None and query.end(row) <= self.frontier]
        answer = Counter(tuple(row[name] for name in query.shown) for row in results)
        assert {row: n for row, n in self.total.items() if n} == answer, query.sql
        if not query.changing:  # what stays as it is is not emitted again
            assert max(Counter(row for _, row in changes).values(), default=1) == 1, query.sql
        frontier = 10**9 if ended else self.frontier
        kept = [row["=a:id"] for row in kept_rows(self.harness, 1 if query.changing else 0).get("rows", ())]
        assert Counter(kept) == Counter(row["id"] for row in valued if query.is_kept(row, frontier)), query.sql
        return sorted(changes, key=repr)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    kind = draw(st.sampled_from(["rank", "lag", "running", "rows"]))
    if kind == "rank":
        return Call(draw(st.sampled_from(RANKS)))
    if kind == "lag":
        return Call("lag", offset=draw(st.integers(0, 2)))
    function = draw(st.sampled_from(["count_all", "count", "sum", "min", "max", "first_value", "last_value"]))
    if kind == "running":
        return Call(function, rows=draw(st.booleans()))
    start = draw(st.sampled_from([None, -1, 0]))
    return Call(function, rows=True, start=start, end=draw(st.sampled_from([0, 1, 1_000])))


#: Which rows there are, and what the state holds of them.
FORMS = ("all", "first", "first, with values", "windows", "first of windows", "changing", "first of changing")


@st.composite
def queries(draw: st.DrawFn, form: str) -> Query:
    by = draw(st.sampled_from([("x",), ("x DESC",), ("x", "y DESC"), ("y DESC", "x")]))
    changing, windowed = "changing" in form, "windows" in form or ("changing" in form and draw(st.booleans()))
    query = Query(
        tuple(draw(st.lists(calls(), min_size=1, max_size=3))),
        keyed=draw(st.booleans()),
        by=by,
        windowed=windowed,
        changing=changing,
    )
    if "windows" in form:
        query = replace(query, final=draw(st.booleans()), delay=draw(st.integers(0, 4)))
    if "first" in form:
        rest = () if form == "first" else query.calls
        most = draw(st.integers(1, 3))
        query = replace(
            query,
            calls=(Call(draw(st.sampled_from(RANKS))), *rest),
            most=most,
            least=draw(st.sampled_from([1, 1, most])),
            shows_rank=draw(st.booleans()),
        )
    return query


VALUES = st.sampled_from([None, 0, 1, 2, 5])
ROWS = st.tuples(st.sampled_from(["u", "v", None]), VALUES, VALUES, st.integers(0, 12), st.integers(0, 9))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60 if ALL else 2)
@given(
    data=st.data(),
    steps=st.lists(st.tuples(st.lists(ROWS, max_size=6), st.booleans()), min_size=1, max_size=5),
    buckets=st.sampled_from([1, 3]),
    small=st.booleans(),
    dead=st.sampled_from([1, stored_rows.MIN_DEAD]),
)
def test_the_changes_add_up_to_the_answer_and_the_rows_that_matter_are_kept(
    form: str, data: st.DataObject, steps: list[tuple[list[Any], bool]], buckets: int, small: bool, dead: int
) -> None:
    query = data.draw(queries(form))
    run, number = Run(query, buckets=buckets, small=small), 0
    with patch.object(stored_rows, "MIN_DEAD", dead):
        for rows, restart in steps:
            fed: list[tuple[Any, ...] | Gone] = []
            there = list(run.rows)
            for k, x, y, t, chosen in rows:
                number += 1
                time = number if query.changing else t + number // 2  # times move on
                if query.changing and there and chosen < 6:
                    id = there.pop(chosen % len(there))  # a row that is stored is retracted, or replaced
                    fed.append(Gone(id, time) if chosen < 3 else (id, k, x, y, time))
                else:
                    fed.append((number, k, x, y, time))
            if restart:
                run.harness.restart()
            run.step(*fed)
        run.end()


def test_a_row_that_moves_within_the_ranks_that_are_shown_is_not_emitted_again() -> None:
    run = Run(Query((Call("row_number"),), keyed=False, by=("x",), most=3, least=1, shows_rank=False))
    run.step((1, "u", 1, None, 0), (2, "u", 2, None, 0), (3, "u", 3, None, 0))
    assert run.step((4, "u", 0, None, 0)) == [(-1, (3, "u", 3, None)), (1, (4, "u", 0, None))]
