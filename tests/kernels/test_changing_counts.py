"""Counters of a changing stream: used, late, quarantined, outdated, and deletes of unknown keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.changing_model import PLAIN, Change, Form, Join, Query, Result, Row, Source, Stream, Term
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

EXAMPLES = max(settings.default.max_examples // 5, 1) if settings.default else 10
DELAY = 2
CHANGING, APPENDED = Stream("r", ("id",), DELAY), Stream("r", (), DELAY)
BY_PRIMARY_KEY = Term("{x}.id = {y}.id", lambda x, y: x.id == y.id)
BY_ANOTHER = Term("{x}.k = {y}.k", lambda x, y: x.k == y.k)
FILTERED = Form("(SELECT * FROM {stream} WHERE v > 0)", lambda row: row.v is not None and row.v > 0)
COUNTS = ("in", "quarantined", "filtered", "late", "used", "outdated", "ignored_deletes")
Given = tuple[Row, int | None]


class Account:
    """What must be counted of one input, computed row by row."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.counts: Counter[str] = Counter()
        self.used: list[Change] = []
        self.newest: int | None = None
        self.known: dict[Result, int] = {}  # by key, the time of its newest change

    @property
    def frontier(self) -> float:
        """Rows before it are not expected."""
        return float("-inf") if self.newest is None else self.newest - DELAY

    def take(self, batch: Sequence[Given], frontier: float) -> None:
        """Count a batch; rows before the frontier are late."""
        stream = self.source.stream
        self.counts["in"] += len(batch)
        on_time: list[Change] = []
        for row, delta in batch:
            if row.ts is None or (stream.key and (row.id is None or delta not in (1, -1))):
                self.counts["quarantined"] += 1
                continue
            self.newest = max(row.ts, row.ts if self.newest is None else self.newest)
            if not stream.key and not self.source.form.keeps(row):
                self.counts["filtered"] += 1
            elif row.ts < frontier:
                self.counts["late"] += 1
            else:
                on_time.append((row, delta or 0))
        self.counts["used"] += len(on_time)
        self.used += on_time
        for key in {stream.key_of(row) for row, _ in on_time} if stream.key else ():
            of_key = [(row.ts or 0, delta) for row, delta in on_time if stream.key_of(row) == key]
            newest = max(time for time, _ in of_key)
            if key in self.known and newest < self.known[key]:
                self.counts["outdated"] += 1
                continue
            self.counts["ignored_deletes"] += key not in self.known and all(delta < 0 for _, delta in of_key)
            self.known[key] = newest


@st.composite
def batches(draw: st.DrawFn, now: int) -> list[Given]:
    row = st.builds(
        Row,
        id=st.sampled_from([1, 1, 2, 2, 3, None]),
        g=st.none(),
        k=st.sampled_from([1, 2]),
        v=st.sampled_from([1, 0, None]),
        ts=st.sampled_from([0, 0, 1, 2, -1, -2, -3, -6, None]).map(lambda by: None if by is None else now + by),
    )
    return draw(st.lists(st.tuples(row, st.sampled_from([1, 1, 1, -1, -1, 0, 2, None])), max_size=8))


@settings(max_examples=EXAMPLES)
@given(
    right=st.sampled_from([CHANGING, APPENDED]),
    form=st.sampled_from([PLAIN, FILTERED]),
    by=st.sampled_from([BY_PRIMARY_KEY, BY_ANOTHER]),
    kind=st.sampled_from(["inner", "left", "full", "anti"]),
    buckets=st.integers(1, 2),
    data=st.data(),
)
def test_every_row_is_counted_once_and_only_those_used_count(
    right: Stream, form: Form, by: Term, kind: str, buckets: int, data: st.DataObject
) -> None:
    left = Source(Stream("l", ("id",), DELAY), "l")
    join = Join(kind, Source(right, "r", form), "l", (by,))
    query = Query(
        left, (join,), (), (), (("l", "id"), ("l", "v"), *((("r", "v"),) if kind not in ("anti", "right_anti") else ()))
    )
    accounts = {"l": Account(left), "r": Account(join.source)}
    harness = Harness(*load_script(query.sql()), buckets=buckets)
    total: Counter[tuple[Any, ...]] = Counter()
    now, together = 20, float("-inf")
    for _ in range(data.draw(st.integers(1, 5))):
        now += data.draw(st.sampled_from([0, 1, 4, 9]))
        given = {name: data.draw(batches(now), name) for name in accounts}
        if data.draw(st.booleans()):
            harness.restart()
        # rows that replace each other within the join share its frontier; before it, each stream has its own
        frontiers = {name: together if by is BY_PRIMARY_KEY else account.frontier for name, account in accounts.items()}
        if not right.key and by is BY_ANOTHER:
            frontiers["r"] = float("-inf")  # nothing bounds how late the rows are that it joins
        fed = {
            name: StepInput([(*row, delta) if accounts[name].source.stream.key else tuple(row) for row, delta in rows])
            for name, rows in given.items()
        }
        outcome = harness.step(fed)
        for name, account in accounts.items():
            account.take(given[name], frontiers[name])
            expected = {each: account.counts[each] for each in COUNTS}
            assert {each: outcome.count(each, [name]) for each in COUNTS} == expected, query.sql()
        together = min(account.frontier for account in accounts.values())
        for weight, row in outcome.changes:
            total[row] += weight
        assert min(total.values(), default=0) >= 0
        assert +total == query.answer({name: account.used for name, account in accounts.items()}), query.sql()


def one_stream(columns: str = "") -> Harness:
    sql = f"CREATE MUTABLE STREAM l (id INT, g INT, v INT{columns}, ts BIGINT) PRIMARY KEY (id, g) "
    return Harness(*load_script(f"{sql} WITH (event_time_unit = 's'); SELECT id, g, v FROM l EMIT CHANGELOG;"))


def counts(outcome: StepOutcome) -> tuple[int, int]:
    return outcome.count("ignored_deletes", ["l"]), outcome.count("outdated", ["l"])


def test_deletes_of_what_was_never_there_and_changes_that_come_too_late_are_counted() -> None:
    harness = one_stream()
    assert counts(harness.step({"l": StepInput([(1, 1, 10, 100, -1)])})) == (1, 0)
    # the key is known by its tombstone now; an older row changes nothing, nor does a second delete
    assert counts(harness.step({"l": StepInput([(1, 1, 10, 90, 1), (1, 1, 10, 95, -1)])})) == (1, 1)
    assert counts(harness.step({"l": StepInput([(1, 1, 10, 105, -1)])})) == (1, 1)
    # a row that a batch adds and deletes was known
    assert counts(harness.step({"l": StepInput([(2, 1, 10, 100, 1), (2, 1, 10, 101, -1)])})) == (1, 1)
    outcome = harness.step({"l": StepInput([(3, 1, 10, 100, -1), (3, 1, 10, 101, -1), (2, 1, 11, 100, 1)])})
    assert counts(outcome) == (2, 2)
    assert outcome.count("used", ["l"]) == 9


@pytest.mark.parametrize("declared", [False, True])
def test_what_cannot_be_a_change_is_quarantined_with_its_reason(declared: bool) -> None:
    harness = one_stream(", _tp_delta INT" if declared else "")
    rows = [(1, 1, 5, 1), (None, 1, 5, 1), (2, None, 5, 1), (3, 1, 5, 0), (4, 1, 5, 2), (5, 1, 5, -2), (6, 1, 5, None)]
    changes = [(*row[:3], row[3], 100) if declared else (*row[:3], 100, row[3]) for row in rows]
    outcome = harness.step({"l": StepInput(changes)})
    assert outcome.changes == [(1, (1, 1, 5))]
    assert outcome.count("quarantined", ["l"]) == 6
    assert outcome.count("used", ["l"]) == 1
    assert sorted(row["reason"] for row in outcome.side) == [
        "_tp_delta is -2: a change is +1 or -1",
        "_tp_delta is 0: a change is +1 or -1",
        "_tp_delta is 2: a change is +1 or -1",
        "_tp_delta is NULL: a change is +1 or -1",
        "primary key column g is NULL",
        "primary key column id is NULL",
    ]
