"""Joins of changing streams, against nested loops over the newest rows, after every batch.

However rows are cut, updated, deleted, brought back or late: what was given, less what was taken back, is the answer.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.changing_model import Change, Query, Result, TemporalJoin
from tests.kernels.changing_queries import changes, query, streams
from watersmeet.engine import frames
from watersmeet.kernels.changelog import stored_rows
from watersmeet.testing.harness import Harness, StepInput, load_script

EXAMPLES = max(settings.default.max_examples // 16, 1) if settings.default else 3


@dataclass
class Case:
    """A query, and the batches that it is fed."""

    query: Query
    batches: list[dict[str, list[Change]]]

    def answers(self) -> Iterator[Counter[Result]]:
        """Return the results after each batch."""
        fed: dict[str, list[Change]] = {name: [] for name in self.query.streams}
        for batch in self.batches:
            for name, rows in batch.items():
                fed[name] += rows
            yield self.query.answer(fed)

    @property
    def taken_back(self) -> int:
        """Return how many results are retracted."""
        answers = list(self.answers())
        return sum((before - after).total() for before, after in pairwise(answers))

    @property
    def shows_all(self) -> bool:
        """Whether rows that differ for the last join differ in the selected columns.

        That is not so of what WHERE reads of results, and of what is computed.  A temporal join revises by left row.
        """
        is_plain = all(source.form.made is None for source in self.query.sources)
        is_temporal = bool(self.query.joins) and isinstance(self.query.joins[-1], TemporalJoin)
        return is_plain and not self.query.where and not is_temporal


def lively(rng: random.Random, draw: Callable[[], Query]) -> Case:
    """Return a random case with a changing stream and retracted results, which few random cases are."""
    while True:
        asked, now = draw(), 20
        case = Case(asked, [])
        known: dict[str, list[Change]] = {name: [] for name in asked.streams}
        for _ in range(rng.randint(3, 5)):
            now += rng.choice([0, 1, 5, 30])
            case.batches.append({name: changes(rng, each, now, known[name]) for name, each in asked.streams.items()})
            for name, rows in case.batches[-1].items():
                known[name] += rows
        if any(stream.key for stream in asked.streams.values()) and case.taken_back > 2:
            return case


def check(rng: random.Random, draw: Callable[[], Query]) -> None:
    """Feed random batches, with restarts, whole or cut, where state is rewritten at once, soon or never."""
    case = lively(rng, draw)
    sql, buckets, is_cut = case.query.sql(), rng.choice([1, 1, 2, 3]), rng.random() < 0.3
    harness = Harness(*load_script(sql), buckets=buckets, max_step_bytes=1 if is_cut else None)
    total: Counter[Result] = Counter()
    log = [sql.replace(";", ";\n"), f"{buckets} buckets", "cut" if is_cut else "whole"]
    with pytest.MonkeyPatch.context() as patch:
        if is_cut:
            patch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
        patch.setattr(stored_rows, "MIN_DEAD", rng.choice([1, 3, 20_000]))
        for batch, answer in zip(case.batches, case.answers(), strict=True):
            if rng.random() < 0.4:
                harness.restart()
                log.append(">>> restart")
            inputs = {name: StepInput(case.query.streams[name].fed(rows)) for name, rows in batch.items()}
            outcome = harness.step(inputs)
            signs = defaultdict(set)
            for weight, row in outcome.changes:
                total[row] += weight
                signs[row].add(weight)
            log += [f">>> {name} {row}" for name, rows in inputs.items() for row in rows.rows]
            log += [f"<<< {weight} {row}" for weight, row in outcome.changes]
            text = "\n".join(log)
            assert min(total.values(), default=0) >= 0, text
            assert +total == answer, text
            assert not outcome.count("late"), text
            if buckets == 1 and case.shows_all and not is_cut:
                assert not [row for row, seen in signs.items() if len(seen) > 1], text


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_a_chain_of_joins_adds_up_to_the_batch_answer_after_every_step(seed: int) -> None:
    rng = random.Random(seed)
    check(rng, lambda: query(rng, list(streams(rng).values())))


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_streams_that_only_append_join_those_that_change(seed: int) -> None:
    rng = random.Random(seed)
    check(rng, lambda: query(rng, list(streams(rng, rng.choice("st")).values())))


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_windowed_joins_of_streams_that_append_go_on_to_streams_that_change(seed: int) -> None:
    rng = random.Random(seed)

    def draw() -> Query:
        of = streams(rng, "s", "t")
        return query(rng, list(of.values()), windowed=[of["s"], of["t"]])

    check(rng, draw)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_a_row_that_changes_may_begin_or_cease_to_need_a_partner(seed: int) -> None:
    rng = random.Random(seed)

    def draw() -> Query:
        of = streams(rng, *rng.choice([(), (), ("s",), ("t", "u")]))
        return query(rng, list(of.values()), under_or=True)

    check(rng, draw)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_rows_of_windowed_joins_need_no_partner_and_are_taken_back(seed: int) -> None:
    rng = random.Random(seed)

    def draw() -> Query:
        of = streams(rng, "s", "t")
        return query(rng, list(of.values()), windowed=[of["s"], of["t"]], under_or=True)

    check(rng, draw)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_a_row_that_changes_meets_the_version_of_its_time(seed: int) -> None:
    rng = random.Random(seed)

    def draw() -> Query:
        of = streams(rng, *rng.choice([(), ("s",)]))
        return query(rng, [of["s"], of["t"]], table=of["u"])

    check(rng, draw)


def outcomes(query: str, *steps: dict[str, list[tuple[Any, ...]]]) -> list[list[tuple[int, Any]]]:
    """Return the changes of each step, in order, of a query over l and r with (id, k, v, ts) and the primary key id."""
    streams = "".join(
        f"CREATE MUTABLE STREAM {name} (id INT, k INT, v INT, ts BIGINT) PRIMARY KEY (id) "
        "WITH (event_time_unit = 's');\n"
        for name in "lr"
    )
    harness = Harness(*load_script(f"{streams}{query} EMIT CHANGELOG"), buckets=1)
    return [harness.step({name: StepInput(rows) for name, rows in step.items()}).changes for step in steps]


def test_a_row_that_changes_in_its_time_alone_is_another_for_a_condition_over_times() -> None:
    """The key of the join is the primary key, so the join itself keeps the newest rows; no result shows the time."""
    for condition in ("r.ts BETWEEN l.ts - 10 AND l.ts + 10", "CAST(l.ts AS STRING) < CAST(r.ts AS STRING)"):
        came, moved = outcomes(
            f"SELECT l.id FROM l JOIN r ON l.id = r.id AND {condition}",
            {"l": [(1, 5, 1, 100)], "r": [(1, 5, 1, 105)]},
            {"l": [(1, 5, 1, 215)]},
        )
        assert came == [(1, (1,))]
        assert moved == [(-1, (1,))]


@pytest.mark.parametrize(
    ("query", "before", "after"),
    [
        pytest.param(
            "SELECT l.id, l.k, l.v, r.id AS rid, r.k AS rk FROM l JOIN r ON l.k = r.k",
            {"l": [(1, 5, 1, 100)], "r": [(7, 5, 1, 100)]},
            {"l": [(1, 5, 1, 101)]},
            id="the same row, with a later time",
        ),
        pytest.param(
            "SELECT l.id, r.v FROM l LEFT JOIN r ON l.id = r.id",
            {"l": [(1, 5, 1, 100)]},
            {"r": [(1, 5, None, 100)]},
            id="a partner that looks like padding",
        ),
        pytest.param(
            "SELECT l.k, r.id FROM l JOIN r ON l.k = r.id",
            {"l": [(1, 5, 1, 100)], "r": [(5, 5, 1, 100)]},
            {"l": [(1, 5, 1, 101, -1), (2, 5, 1, 101)]},
            id="another row in its place",
        ),
        pytest.param(
            "SELECT r.v FROM l JOIN r ON l.id = r.id",
            {"l": [(1, 5, 1, 100), (2, 5, 1, 100)], "r": [(1, 5, 9, 100)]},
            {"r": [(1, 5, 9, 101, -1), (2, 5, 9, 101)]},
            id="another pair in its place",
        ),
    ],
)
def test_what_looks_the_same_before_and_after_leaves_no_trace(
    query: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    came, changed = outcomes(query, before, after)
    assert len(came) == 1
    assert changed == []


def test_a_row_that_loses_its_partner_and_an_equal_one_that_needs_none_leave_no_trace() -> None:
    harness = Harness(
        *load_script(
            "CREATE STREAM l (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
            "CREATE MUTABLE STREAM r (k INT, PRIMARY KEY (k));"
            "SELECT l.k FROM l WHERE l.v > 10 OR EXISTS (SELECT 1 FROM r WHERE r.k = l.k)"
        ),
        buckets=1,
    )
    assert harness.step({"l": StepInput([(1, 5, 5)]), "r": StepInput([(1,)])}).changes == [(1, (1,))]
    assert harness.step({"l": StepInput([(1, 20, 6)]), "r": StepInput([(1, -1)])}).changes == []
