"""The changelog kernel of joins as of a time, and the one that joins at once, against a simple model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.asof_bench import DELAY, END, MATCH, AsofBench, Given, Steps, steps_of
from tests.support.reference import Row, asof_join, standing, versions_at
from watersmeet.engine.frames import mark_frame, row_frames
from watersmeet.kernels.asof import changelog as asof_changelog
from watersmeet.kernels.asof import step as asof_step
from watersmeet.kernels.asof.at_once import AsofAtOnce
from watersmeet.kernels.asof.changelog import AsofChangelog
from watersmeet.kernels.asof.final import AsofJoin
from watersmeet.kernels.asof.match import Direction, Versions
from watersmeet.kernels.match import Key
from watersmeet.state import working_set

EXAMPLES = max(settings.default.max_examples // 4, 6) if settings.default else 12
Name = Literal["backward", "forward", "nearest"]
STEPS = steps_of(6, 3)
Answer = Callable[[Sequence[Row], Sequence[Row]], Counter[tuple[Any, ...]]]


class Feed:
    """Turns drawn steps into batches whose rows are never late, and remembers what was fed."""

    def __init__(self, bench: AsofBench, *, keyed: bool, left_changes: bool) -> None:
        self.bench = bench
        self.keyed = keyed
        self.left_changes = left_changes
        self.left: list[Row] = []
        self.right: list[Row] = []
        self.newest = 0

    def step(self, passed: int, batch: list[Given], restarts: bool) -> None:
        floor, self.newest = self.newest - DELAY, self.newest + passed
        lefts: list[Row] = []
        rights: list[Row] = []
        for side, ahead, key, value, pk, minus in batch:
            time = min(floor + ahead, self.newest)
            if side == "l" and minus and self.left_changes:
                known = [row for row in self.left if row["t"] >= floor]
                if known:
                    self.left.remove(known[0])
                    lefts.append({**known[0], "w": -1})
            elif side == "l":
                lefts.append(
                    {
                        "t": time,
                        "k": key,
                        "v": value,
                        "w": 1,
                        "id": f"{len(self.bench.results)}.{id(lefts)}.{len(lefts)}.{self.newest}",
                    }
                )
            else:
                seq = len(self.right) + len(rights)
                thing = pk if self.keyed else seq
                rights.append({"t": time, "k": key, "v": value, "pk": thing, "w": -1 if minus else 1, "seq": seq})
        self.left += [row for row in lefts if row["w"] > 0]
        self.right += rights
        self.bench.rows(lefts, rights, self.newest)
        if restarts:
            self.bench.working_sets.forget()


def settling(at: int) -> pytest.MonkeyPatch:
    """Rows are settled from ``settles_at`` on; unless that is at once, stored rows are looked up by an index."""
    patch = pytest.MonkeyPatch()
    if at:
        patch.setattr(asof_step, "STORED_PER_LOOKUP", 0)
        patch.setattr(working_set, "MIN_INDEXED", 1)
    patch.setattr(asof_step, "MIN_SETTLED", at)
    patch.setattr(asof_changelog, "MIN_SETTLED", at)
    return patch


def run(bench: AsofBench, feed: Feed, steps: Steps, settles_at: int, answer: Answer) -> None:
    """After every step, emitted minus retracted results are the answer over all rows so far."""
    patch = settling(settles_at)
    try:
        for step in steps:
            feed.step(*step)
            assert bench.results == answer(feed.left, feed.right)
        bench.feed([END])
        assert bench.results == answer(feed.left, feed.right)
    finally:
        patch.undo()
    assert bench.counters.get("late.l", 0) == bench.counters.get("late.r", 0) == 0


@pytest.mark.sample(3)
@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("settles_at", [0, 4, 50_000])
@given(
    by=st.sampled_from(["key", "part", "other"]),
    takes_away=st.booleans(),
    indexed=st.booleans(),
    outer=st.booleans(),
    tested=st.booleans(),
    left_changes=st.booleans(),
    steps=STEPS,
)
def test_a_table_that_changes_is_joined_as_of_the_row_s_time_at_every_moment(
    settles_at: int,
    by: str,
    takes_away: bool,
    indexed: bool,
    outer: bool,
    tested: bool,
    left_changes: bool,
    steps: Steps,
) -> None:
    keys = {"key": [("k", "pk")], "part": [("k", "pk"), ("v", "v")], "other": [("k", "k")]}[by]
    match = replace(
        MATCH,
        right=replace(MATCH.right, condition=("r:k", "r:v", "r:pk")),
        keys=tuple(Key(f"l:{a}", f"r:{b}") for a, b in keys),
        versions=Versions(
            by=("r:pk",),
            sequence="r:$seq",
            identity=("r:pk",),
            weight="r:w",
            takes_away=takes_away,
            ends=True,
            index=("r:k",) if by == "other" and indexed else (),
        ),
        outer=outer,
        residual='l."l:v" <= r."r:v"' if tested else None,
    )
    bench = AsofBench(AsofChangelog(match, left_changes, gives_ids=left_changes))

    def answer(left: Sequence[Row], right: Sequence[Row]) -> Counter[tuple[Any, ...]]:
        rows = standing(right, takes_away=takes_away, ends=True)
        found: Counter[tuple[Any, ...]] = Counter()
        for one in left:
            partners = [
                other
                for other in versions_at(rows, one["t"])
                if all(one[a] is not None and one[a] == other[b] for a, b in keys)
                and (not tested or one["v"] <= other["v"])
            ]
            for other in partners:
                found[one["t"], one["v"], other["v"], other["t"]] += 1
            if outer and not partners:
                found[one["t"], one["v"], None, None] += 1
        return found

    run(bench, Feed(bench, keyed=True, left_changes=left_changes), steps, settles_at, answer)
    # once all is final, a query that waits emits the same
    waiting = AsofBench(AsofJoin(match))
    patch = settling(settles_at)
    feed = Feed(waiting, keyed=True, left_changes=False)
    try:
        for step in steps:
            feed.step(*step)
        waiting.feed([END])
    finally:
        patch.undo()
    assert waiting.results == answer(feed.left, feed.right)


@pytest.mark.sample(3)
@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@given(
    settles_at=st.sampled_from([0, 4, 50_000]),
    strict=st.booleans(),
    tolerance=st.sampled_from([None, 0, 2, 5]),
    outer=st.booleans(),
    keyed=st.booleans(),
    identified=st.booleans(),
    tested=st.booleans(),
    left_changes=st.booleans(),
    steps=STEPS,
)
def test_asof_is_matched_anew_when_a_nearer_row_comes_or_goes(
    direction: Name,
    settles_at: int,
    strict: bool,
    tolerance: int | None,
    outer: bool,
    keyed: bool,
    identified: bool,
    tested: bool,
    left_changes: bool,
    steps: Steps,
) -> None:
    strict = strict and direction != "nearest"
    by = ("r:k",) if keyed else ()
    versions = Versions(by, "r:$seq")
    if identified:
        versions = Versions(by, "r:$seq", (*by, "r:pk"), "r:w", takes_away=True)
    match = replace(
        MATCH,
        keys=(Key("l:k", "r:k"),) if keyed else (),
        versions=versions,
        direction=Direction(direction),
        strict=strict,
        tolerance=tolerance,
        outer=outer,
        residual='l."l:v" <= r."r:v"' if tested else None,
    )
    bench = AsofBench(AsofChangelog(match, left_changes, gives_ids=True))

    def answer(left: Sequence[Row], right: Sequence[Row]) -> Counter[tuple[Any, ...]]:
        identity = ("k", "pk") if keyed else ("pk",)
        rows = standing(right, takes_away=True, ends=False, identity=identity) if identified else right
        pairs = asof_join(
            left,
            rows,
            direction,
            on=[("k", "k")] if keyed else [],
            strict=strict,
            tolerance=tolerance,
            outer=outer,
            residual=(lambda l, r: l["v"] <= r["v"]) if tested else None,  # noqa: E741
        )
        return Counter((l["t"], l["v"], r and r["v"], r and r["t"]) for l, r in pairs if l is not None)  # noqa: E741

    run(bench, Feed(bench, keyed=identified, left_changes=left_changes), steps, settles_at, answer)


@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("direction", [Direction.BACKWARD, Direction.CURRENT])
@given(settles_at=st.sampled_from([0, 4, 50_000]), outer=st.booleans(), takes_away=st.booleans(), steps=STEPS)
def test_at_once_each_row_meets_what_is_known_at_its_step(
    direction: Direction, settles_at: int, outer: bool, takes_away: bool, steps: Steps
) -> None:
    match = replace(
        MATCH,
        right=replace(MATCH.right, condition=("r:k", "r:v", "r:pk")),
        keys=(Key("l:k", "r:pk"),),
        versions=Versions(("r:pk",), "r:$seq", ("r:pk",), "r:w", takes_away=takes_away, ends=True),
        direction=direction,
        outer=outer,
    )
    bench = AsofBench(AsofAtOnce(match), waits=False)
    feed = Feed(bench, keyed=True, left_changes=False)
    expected: Counter[tuple[Any, ...]] = Counter()
    behind = 0
    patch = settling(settles_at)
    try:
        for step in steps:
            seen, known = len(feed.left), len(feed.right)
            joined = max((row["t"] for row in feed.left), default=None)
            feed.step(*step)
            rows = standing(feed.right, takes_away=takes_away, ends=True)
            if joined is not None:
                behind += sum(row["t"] <= joined for row in feed.right[known:])
            for one in feed.left[seen:]:
                time = 10**9 if direction is Direction.CURRENT else one["t"]
                found = [other for other in versions_at(rows, time) if other["pk"] == one["k"]]
                for other in found:
                    expected[one["t"], one["v"], other["v"], other["t"]] += 1
                if outer and not found:
                    expected[one["t"], one["v"], None, None] += 1
            assert bench.results == expected
    finally:
        patch.undo()
    if direction is Direction.BACKWARD:
        assert bench.counters.get("behind", 0) == behind


def test_a_version_that_was_taken_away_leaves_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also once both lie below the frontier, where only what counts of each key is kept."""
    monkeypatch.setattr(asof_step, "MIN_SETTLED", 0)
    versions = Versions(("r:k",), "r:$seq", ("r:k",), "r:w", takes_away=True, ends=True)
    bench = AsofBench(AsofJoin(replace(MATCH, versions=versions)))
    changes = [(0, 10, 1), (5, 20, 1), (5, 20, -1)]
    bench.rows([], [{"t": t, "k": 1, "v": v, "w": w, "seq": n} for n, (t, v, w) in enumerate(changes)], 20)
    bench.rows([], [], 30)
    assert bench.counters["state_rows"] == 1
    bench.rows([{"t": 30, "k": 1, "v": 7}], [], 40)
    assert bench.results == {(30, 7, 10, 0): 1}


@pytest.mark.slow
def test_after_a_million_events_no_row_of_the_stream_is_kept_where_nothing_waits() -> None:
    bench = AsofBench(AsofAtOnce(MATCH), waits=False)
    bench.rows([], [{"t": 0, "k": key, "v": key, "seq": key} for key in range(10)], 0)
    batch = 100_000
    for first in range(0, 1_000_000, batch):
        columns = [np.arange(first, first + batch), np.arange(batch) % 10, np.zeros(batch, dtype=np.int64)]
        events = pa.table(columns, schema=bench.schemas[0])
        bench.feed([*row_frames(events, bucket=0, input=0), mark_frame(0, 0, "", first)])
    assert bench.counters["used.l"] == sum(bench.results.values()) == 1_000_000
    assert bench.counters["state_rows"] == 10, "the versions"
