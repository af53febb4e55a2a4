"""Joins as of a time whose versions are asked for by other times, change behind the frontier, or come in order.

Each against a simple model over all rows, in random batches with restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import test_asof_changelog as changelog
from tests.kernels.asof_bench import DELAY, END, MATCH, AsofBench, Given, Steps, steps_of
from tests.kernels.test_asof_changelog import settling
from tests.support.index_lookups import always_looked_up
from tests.support.reference import Row, standing, versions_at
from watersmeet.kernels.asof.at_once import AsofAtOnce
from watersmeet.kernels.asof.changelog import AsofChangelog
from watersmeet.kernels.asof.final import AsofJoin
from watersmeet.kernels.asof.match import Asked, AsofMatch, Direction, Versions, VersionTimes, with_times
from watersmeet.kernels.match import Key, SideColumns

EXAMPLES = max(settings.default.max_examples // 4, 6) if settings.default else 12
LONG_AFTER = 10**9
STEPS = steps_of(12, 14)
TABLE = Versions(("r:pk",), "r:$seq", ("r:pk",), "r:w", ends=True)
BY_KEY = (Key("l:k", "r:pk"),)
BY_OTHER = (Key("l:k", "r:k"),)
#: Left rows ask for the time in ``l:v``; then ``$t`` is not their event time.
ASKED = Asked('CAST("l:v" AS HUGEINT)', "l:$t", fixed=False)


def of_table(times: VersionTimes, *, by_key: bool, takes_away: bool = False, outer: bool = True) -> AsofMatch:
    """A join with a table by its primary key or by another column."""
    match = replace(
        MATCH,
        left=SideColumns(("l:$t", "l:v"), ("l:k", "l:v"), None) if times.asked else MATCH.left,
        right=replace(MATCH.right, condition=("r:k", "r:v", "r:pk")),
        keys=BY_KEY if by_key else BY_OTHER,
        versions=replace(TABLE, takes_away=takes_away),
        outer=outer,
    )
    return with_times(match, times)


class Feed:
    """Feeds drawn steps: right rows from ``back`` behind the frontier on, all others from the frontier on."""

    def __init__(self, bench: AsofBench, *, back: int = 0, fixed: int | None = None) -> None:
        self.bench, self.back, self.fixed = bench, back, fixed
        self.left: list[Row] = []
        self.right: list[Row] = []
        self.newest = 0

    @property
    def floor(self) -> int:
        """The frontier."""
        return self.newest - DELAY

    def step(self, passed: int, batch: Sequence[Given], restarts: bool) -> tuple[list[Row], list[Row]]:
        floor, self.newest = self.floor, self.newest + passed
        lefts: list[Row] = []
        rights: list[Row] = []
        for side, ahead, key, value, pk, minus in batch:
            if side == "l":
                value = value if self.fixed is None else self.fixed
                lefts.append({"t": min(floor + ahead, self.newest), "k": key, "v": value})
            else:
                time = min(floor - self.back + ahead, self.newest)
                seq = len(self.right) + len(rights)
                rights.append({"t": time, "k": key, "v": value, "pk": pk, "w": -1 if minus else 1, "seq": seq})
        self.left += lefts
        self.right += rights
        self.bench.rows(lefts, rights, self.newest)
        if restarts:
            self.bench.working_sets.forget()
        return lefts, rights


def joined(
    left: Sequence[Row], right: Sequence[Row], match: AsofMatch, time: Any = lambda row: row["t"]
) -> Counter[tuple[Any, ...]]:
    """Each left row with the versions that hold at its time and have its key."""
    rows = standing(right, takes_away=match.versions.takes_away, ends=True)
    by = "pk" if match.keys == BY_KEY else "k"
    found: Counter[tuple[Any, ...]] = Counter()
    for one in left:
        partners = [other for other in versions_at(rows, time(one)) if one["k"] is not None and one["k"] == other[by]]
        for other in partners:
            found[one["t"], one["v"], other["v"], other["t"]] += 1
        if match.outer and not partners:
            found[one["t"], one["v"], None, None] += 1
    return found


@pytest.mark.sample(3)
@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("settles_at", [0, 4, 50_000])
@given(
    back=st.sampled_from([1, 4, None]),
    by_key=st.booleans(),
    takes_away=st.booleans(),
    looked_up=st.sampled_from([nullcontext, always_looked_up]),
    steps=STEPS,
)
def test_changes_of_a_table_correct_results_as_far_back_as_it_is_retained(
    settles_at: int,
    back: int | None,
    by_key: bool,
    takes_away: bool,
    looked_up: Callable[[], AbstractContextManager[object]],
    steps: Steps,
) -> None:
    match = of_table(VersionTimes(kept=back, corrected=back), by_key=by_key, takes_away=takes_away)
    bench = AsofBench(AsofChangelog(match), retention=back)
    feed = Feed(bench, back=9 if back is None else back)
    patch = settling(settles_at)
    try:
        with looked_up():
            for step in steps:
                feed.step(*step)
                assert bench.results == joined(feed.left, feed.right, match)
            bench.feed([END])
        assert bench.results == joined(feed.left, feed.right, match)
    finally:
        patch.undo()
    assert bench.counters.get("late.r", 0) == bench.counters.get("late.l", 0) == 0


@pytest.mark.sample(3)
@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("settles_at", [0, 4, 50_000])
@given(by_key=st.booleans(), takes_away=st.booleans(), outer=st.booleans(), steps=STEPS)
def test_a_row_s_result_follows_the_newest_version(
    settles_at: int, by_key: bool, takes_away: bool, outer: bool, steps: Steps
) -> None:
    """``AS OF PROCTIME()`` in a changelog."""
    match = of_table(VersionTimes(corrected=None), by_key=by_key, takes_away=takes_away, outer=outer)
    match = replace(match, direction=Direction.CURRENT)
    bench = AsofBench(AsofChangelog(match), waits=False)
    feed = Feed(bench)
    patch = settling(settles_at)
    try:
        for step in steps:
            feed.step(*step)
            assert bench.results == joined(feed.left, feed.right, match, lambda _: LONG_AFTER)
    finally:
        patch.undo()


@pytest.mark.sample(3)
@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("settles_at", [0, 4, 50_000])
@given(
    kind=st.sampled_from(["final", "changelog", "at once"]),
    fixed=st.sampled_from([None, None, 0, 4, 30]),
    kept=st.sampled_from([None, 0, 3]),
    by_key=st.booleans(),
    steps=STEPS,
)
def test_rows_ask_for_the_versions_of_other_times(
    settles_at: int, kind: str, fixed: int | None, kept: int | None, by_key: bool, steps: Steps
) -> None:
    asked = ASKED if fixed is None else replace(ASKED, fixed=True)
    match = of_table(VersionTimes(asked=asked, kept=kept), by_key=by_key)
    kernel = {"final": AsofJoin, "changelog": AsofChangelog, "at once": AsofAtOnce}[kind](match)
    bench = AsofBench(kernel, waits=kind != "at once")
    feed = Feed(bench, fixed=fixed)
    at_once: Counter[tuple[Any, ...]] = Counter()
    too_old = 0
    patch = settling(settles_at)
    times: dict[int, int | None] = {}  # by the place of a left row; None: older than what is kept

    def time(row: Row) -> int | None:
        return times[next(n for n, each in enumerate(feed.left) if each is row)]

    try:
        for number, step in enumerate(steps):
            oldest = -(10**9) if kept is None or fixed is not None or number == 0 else feed.floor - kept
            lefts, _ = feed.step(*step)
            for place in range(len(feed.left) - len(lefts), len(feed.left)):
                asks = feed.left[place]["v"]
                times[place] = asks if asks >= oldest else None
                too_old += asks < oldest
            at_once += joined(lefts, feed.right, match, time)
            if kind == "at once":
                assert bench.results == at_once
            elif kind == "changelog":
                assert bench.results == joined(feed.left, feed.right, match, time)
            else:
                known = [row for row in feed.left if (asks := time(row)) is None or asks < feed.floor]
                assert bench.results == joined(known, feed.right, match, time)
        bench.feed([END])
        assert kind == "at once" or bench.results == joined(feed.left, feed.right, match, time)
    finally:
        patch.undo()
    assert bench.counters.get("too_old", 0) == too_old


@pytest.mark.sample(3)
@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("times", [VersionTimes(asked=ASKED, kept=None), VersionTimes(in_order=True)])
@given(settles_at=st.sampled_from([0, 4, 50_000]), steps=changelog.STEPS)
def test_rows_are_taken_back_whatever_version_they_asked_for(
    times: VersionTimes, settles_at: int, steps: Steps
) -> None:
    match = of_table(times, by_key=True)
    bench = AsofBench(AsofChangelog(match, left_changes=True, gives_ids=True))
    feed = changelog.Feed(bench, keyed=True, left_changes=True)
    asks = (lambda row: row["v"]) if times.asked else (lambda row: row["t"])
    changelog.run(bench, feed, steps, settles_at, lambda left, right: joined(left, right, match, asks))


@pytest.mark.sample(3)
@settings(max_examples=EXAMPLES)
@pytest.mark.parametrize("settles_at", [0, 4, 50_000])
@given(is_changelog=st.booleans(), steps=STEPS)
def test_rows_behind_a_table_in_order_are_final_at_once(settles_at: int, is_changelog: bool, steps: Steps) -> None:
    match = with_times(replace(MATCH, outer=True), VersionTimes(in_order=True))
    bench = AsofBench(AsofChangelog(match) if is_changelog else AsofJoin(match), in_order=True)
    left: list[Row] = []
    right: list[Row] = []
    newest = newest_right = 0

    def answer(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for one in rows:
            before = [r for r in right if r["k"] is not None and r["k"] == one["k"] and r["t"] <= one["t"]]
            best = max(before, key=lambda r: (r["t"], r["seq"]), default=None)
            found[one["t"], one["v"], best and best["v"], best and best["t"]] += 1
        return found

    patch = settling(settles_at)
    try:
        for passed, batch, restarts in steps:
            floor = min(newest - DELAY, newest_right)
            newest += passed
            lefts: list[Row] = []
            rights: list[Row] = []
            for side, ahead, key, value, _, _ in batch:
                if side == "l":
                    lefts.append({"t": min(floor + ahead, newest), "k": key, "v": value})
                else:
                    newest_right += ahead % 4
                    rights.append({"t": newest_right, "k": key, "v": value, "seq": len(right) + len(rights)})
            left += lefts
            right += rights
            bench.rows(lefts, rights, newest, newest_right=newest_right)
            if restarts:
                bench.working_sets.forget()
            known = left if is_changelog else [row for row in left if row["t"] < newest_right]
            assert bench.results == answer(known)
        bench.feed([END])
        assert bench.results == answer(left)
    finally:
        patch.undo()
    assert bench.counters.get("late.r", 0) == bench.counters.get("late.l", 0) == 0


def test_as_of_a_constant_one_version_of_each_key_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the table has passed it."""
    monkeypatch.setattr("watersmeet.kernels.asof.step.MIN_SETTLED", 0)
    times = VersionTimes(asked=replace(ASKED, fixed=True))
    left = SideColumns(("l:$t", "l:v"), ("l:k", "l:v"))
    bench = AsofBench(AsofJoin(with_times(replace(MATCH, left=left), times)))
    versions = [{"t": t, "k": t % 2, "v": t, "seq": t} for t in range(30)]
    bench.rows([], versions[:10], 10)
    bench.rows([{"t": 10, "k": 1, "v": 12}], versions[10:20], 20)
    bench.rows([], versions[20:], 30)
    bench.rows([], [], 40)
    assert bench.results == {(10, 12, 11, 11): 1}
    assert bench.counters["state_rows"] == 2
    bench.rows([{"t": 38, "k": 0, "v": 12}], [], 50)
    assert bench.results == {(10, 12, 11, 11): 1, (38, 12, 12, 12): 1}


def test_without_a_row_that_asks_no_version_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constant is not known before the first row."""
    monkeypatch.setattr("watersmeet.kernels.asof.step.MIN_SETTLED", 0)
    match = of_table(VersionTimes(asked=replace(ASKED, fixed=True)), by_key=True)
    bench = AsofBench(AsofJoin(match))
    bench.rows([], [{"t": t, "k": 0, "v": t, "pk": 1, "w": 1, "seq": t} for t in range(30)], 40)
    bench.rows([], [], 50)
    bench.rows([{"t": 50, "k": 1, "v": 7}], [], 60)
    assert bench.results == {(50, 7, 7, 7): 1}


def test_a_left_column_that_stands_for_two_key_columns_is_looked_up() -> None:
    """``l.k = r.pk AND l.k = r.k``."""
    match = of_table(VersionTimes(kept=None, corrected=None), by_key=True)
    match = replace(match, keys=(*BY_KEY, *BY_OTHER), versions=replace(TABLE, by=("r:pk", "r:k")))
    bench = AsofBench(AsofChangelog(match), retention=None)
    with always_looked_up() as searches:
        bench.rows([{"t": 5, "k": k, "v": 0} for k in range(100)], [], 10)
        bench.rows([], [{"t": 1, "k": 7, "v": 9, "pk": 7, "w": 1, "seq": 0}], 10)
    assert bench.results[5, 0, 9, 1] == 1
    assert (("l:k",), 1) in searches
