"""Windowed joins with limits, step by step against the obvious model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.limits_model import LimitedJoin
from tests.kernels.models import KINDS
from tests.kernels.test_streamed_results import stream_all
from tests.support.reference import Kind
from watersmeet.engine import evicted_rows, frames
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.errors import LimitError
from watersmeet.state import working_set
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

STREAMS = """
CREATE STREAM l (k INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (k INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""
WORDS = {
    "inner": "JOIN",
    "right_semi": "RIGHT SEMI JOIN",
    "right_anti": "RIGHT ANTI JOIN",
    **{kind: f"{kind.upper()} JOIN" for kind in ("left", "right", "full", "semi", "anti")},
}
END = Event(EventKind.END)
Rows = dict[str, list[tuple[int | None, str, int]]]
few = settings(max_examples=settings.default.max_examples // 2 if settings.default else 25)


def text_of(kind: Kind, within: int | None, emit: str, limits: str, buckets: int = 1) -> str:
    """The join in SQL; rows are key, text and time of one side or of both."""
    sides = [kind.removeprefix("right_")[0] if kind in ("semi", "anti") else "r"] if "_" in kind else ["l", "r"]
    if kind in ("semi", "anti"):
        sides = ["l"]
    columns = ", ".join(f"{side}.{name} AS {side}_{name}" for side in sides for name in ("k", "v", "ts"))
    window = "" if within is None else f" WITHIN INTERVAL '{within}' SECONDS"
    return (
        f"{STREAMS}SELECT {columns} FROM l {WORDS[kind]} r ON l.k = r.k{window} "
        f"EMIT {emit} SETTINGS buckets = {buckets}, {limits};"
    )


@st.composite
def steps_of(draw: st.DrawFn) -> list[Rows]:
    """Rows of distinct times, somewhat out of order, in steps."""
    count = draw(st.integers(1, 24))
    times = sorted(draw(st.sets(st.integers(0, 60), min_size=count, max_size=count)))
    order = sorted(times, key=lambda time: time + draw(st.integers(0, 12)))
    steps: list[Rows] = [{"l": [], "r": []}]
    for time in order:
        if draw(st.integers(0, 3)) == 0:
            steps.append({"l": [], "r": []})
        key = draw(st.sampled_from((1, 1, 2, 3, None)))
        steps[-1][draw(st.sampled_from("lr"))].append((key, "x" * draw(st.sampled_from((0, 1, 9, 40))), time))
    return steps


def follow(harness: Harness, model: LimitedJoin, steps: list[Rows], restarts: set[int]) -> None:
    """Run the steps and the end of input; after each, results, counts and state must be just the model's."""
    found: Counter[Any] = Counter()
    for number, step in enumerate(steps):
        if number in restarts:
            harness.restart()
        outcome = harness.step({stream: StepInput(rows) for stream, rows in step.items()})
        model.take(step)
        for weight, row in outcome.changes:
            found[row] += weight
        assert +found == +model.results
        assert outcome.count("state_rows") == len(model.held)
        assert outcome.count("late") == model.late
        assert outcome.count("expired") == model.expired
        assert _evicted(outcome.counters) == model.evicted
        assert outcome.count("state_bytes") <= model.max_bytes
    outcome = harness.step({}, [END])
    model.end()
    for weight, row in outcome.changes:
        found[row] += weight
    assert found == model.results


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", KINDS)
@few
@given(
    steps=steps_of(),
    within=st.integers(0, 30),
    emit=st.sampled_from(("FINAL", "CHANGELOG")),
    policy=st.sampled_from(("oldest", "lru", "pressure", "per_key")),
    most=st.sampled_from((None, 1, 2, 3)),
    max_bytes=st.sampled_from((140, 260, 500)),
    restarts=st.sets(st.integers(0, 8)),
    max_step_bytes=st.sampled_from((None, 1)),
)
def test_each_batch_does_what_the_model_does(
    kind: Kind,
    steps: list[Rows],
    within: int,
    emit: str,
    policy: str,
    most: int | None,
    max_bytes: int,
    restarts: set[int],
    max_step_bytes: int | None,
) -> None:
    """Also one that takes a step for each key or so: its frames have few rows, and yet more than a step may have."""
    if policy == "per_key":
        most, max_bytes = most or 2, 1_000_000
    limits = f"eviction = '{policy}', join_max_buffered_bytes = {max_bytes}"
    limits += "" if most is None else f", max_rows_per_key = {most}"
    harness = Harness(*load_script(text_of(kind, within, emit, limits)), max_step_bytes=max_step_bytes)
    retracts = kind not in ("inner", "semi", "right_semi")
    model = LimitedJoin(kind, within, emit == "CHANGELOG" and retracts, policy, most, max_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "MAX_PAYLOAD_BYTES", frames.MAX_PAYLOAD_BYTES if max_step_bytes is None else 200)
        follow(harness, model, steps, restarts)


@pytest.mark.sample(32)
@pytest.mark.parametrize("policy", ["oldest", "lru", "pressure", "per_key"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_cut_evicts_the_rows_that_a_whole_one_does(kind: Kind, policy: str) -> None:
    """Many rows of few times, of keys with few rows and with many."""
    limits = f"eviction = '{policy}', join_max_buffered_bytes = {10**6 if policy == 'per_key' else 1_500}"
    limits += f", evicted_rows = 'gone'{'' if policy == 'oldest' else ', max_rows_per_key = 3'}"
    for seed in range(2):
        found = []
        for most in (None, 1):
            drawn = random.Random(seed)
            harness = Harness(*load_script(text_of(kind, 30, "FINAL", limits)), max_step_bytes=most)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(frames, "MAX_PAYLOAD_BYTES", 200 if most else frames.MAX_PAYLOAD_BYTES)
                given = [harness.step(batch) for batch in _batches(drawn)]
            found.append([_what_left(outcome) for outcome in given])
        assert found[0] == found[1]
        assert sum(len(rows) for _, rows, _ in found[0]) > 10


@pytest.mark.sample(4)
@pytest.mark.parametrize("policy", ["oldest", "lru", "pressure", "per_key"])
def test_evicted_rows_that_leave_in_pieces_are_the_same(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As emitted, and in the side output, where memory is little."""
    limits = f"eviction = '{policy}', join_max_buffered_bytes = {10**6 if policy == 'per_key' else 1_500}"
    limits += f", evicted_rows = 'gone'{'' if policy == 'oldest' else ', max_rows_per_key = 3'}"

    def found() -> list[tuple[Any, ...]]:
        harness = Harness(*load_script(text_of("full", 30, "FINAL", limits)))
        return [_what_left(harness.step(batch)) for batch in _batches(random.Random(1))]

    whole = found()
    stream_all(monkeypatch)
    monkeypatch.setattr(working_set, "_PART_BYTES", 100)
    monkeypatch.setattr(evicted_rows, "_ROWS_AT_ONCE", 3)
    assert found() == whole


@pytest.mark.parametrize("kind", ["inner", "full"])
def test_what_is_past_at_the_end_of_a_batch_counts_for_no_limit(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier steps of a batch that is cut store rows that the frontier has passed in the last one."""

    def sizes(most_bytes: int, most: int | None) -> list[int]:
        limits = f"max_rows_per_key = 100, join_max_buffered_bytes = {most_bytes}"
        harness = Harness(*load_script(text_of(kind, 5, "FINAL", limits)), max_step_bytes=most)
        fed = ([(time % 7, "", time) for time in range(first, first + 60)] for first in range(0, 180, 60))
        return [harness.step({name: StepInput(rows) for name in "lr"}).count("state_bytes") for rows in fed]

    whole = sizes(1_000_000, None)
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 200)
    assert sizes(max(whole), 1) == whole


def test_rows_are_evicted_where_the_last_step_of_a_batch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows have one key, and the frontier stands still."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
    limits = "eviction = 'per_key', max_rows_per_key = 2"
    for key in range(4):
        harness = Harness(*load_script(text_of("inner", 30, "FINAL", limits)), max_step_bytes=1)
        for first in (0, 9):
            outcome = harness.step({"l": StepInput([(key, "", first + number) for number in range(9)])})
            assert outcome.count("state_rows") == 2


def _batches(drawn: random.Random) -> Iterator[dict[str, StepInput]]:
    for first in range(0, 100, 10):
        keys = [drawn.choice([None, 1, 1, 1, *range(2, 30)]) for _ in range(30)]
        rows = [(key, "x" * drawn.randrange(9), first + drawn.randrange(12)) for key in keys]
        yield {"l": StepInput(rows[:20]), "r": StepInput(rows[20:])}


def _what_left(outcome: StepOutcome) -> tuple[Any, ...]:
    """The results of a batch, the rows that it evicted, and what is left."""
    left = {"state_rows": outcome.count("state_rows"), **_evicted(outcome.counters)}
    return sorted(outcome.changes, key=repr), sorted(outcome.side, key=repr), left


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@few
@given(
    steps=steps_of(),
    ttl=st.integers(1, 30),
    emit=st.sampled_from(("FINAL", "CHANGELOG")),
    max_bytes=st.sampled_from((140, 1_000_000)),
    restarts=st.sets(st.integers(0, 8)),
)
def test_rows_without_a_window_leave_by_their_age(
    kind: Kind, steps: list[Rows], ttl: int, emit: str, max_bytes: int, restarts: set[int]
) -> None:
    limits = f"join_ttl = '{ttl} seconds', eviction = 'oldest', join_max_buffered_bytes = {max_bytes}"
    retracts = kind not in ("inner", "semi", "right_semi")
    model = LimitedJoin(kind, ttl, emit == "CHANGELOG" and retracts, "oldest", None, max_bytes, is_window=False)
    follow(Harness(*load_script(text_of(kind, None, emit, limits))), model, steps, restarts)


@few
@given(steps=steps_of(), policy=st.sampled_from(("oldest", "lru", "pressure")), max_bytes=st.sampled_from((300, 600)))
def test_the_limit_holds_over_all_buckets_and_every_row_is_accounted_for(
    steps: list[Rows], policy: str, max_bytes: int
) -> None:
    limits = f"eviction = '{policy}', join_max_buffered_bytes = {max_bytes}, evicted_rows = 'gone'"
    harness = Harness(*load_script(text_of("full", 20, "FINAL", limits, buckets=3)))
    padded = matched = gone = 0
    for step in steps:
        outcome = harness.step({stream: StepInput(rows) for stream, rows in step.items()})
        gone += len(outcome.side)
        padded += sum(None in (row[2], row[5]) for _, row in outcome.changes)
        matched += sum(None not in (row[2], row[5]) for _, row in outcome.changes)
        assert outcome.count("state_bytes") <= max_bytes
        assert gone == sum(_evicted(outcome.counters).values())
    outcome = harness.step({}, [END])
    padded += len(outcome.changes)
    alone = outcome.count("used") - padded
    assert 0 <= alone <= 2 * matched  # every row on time came out alone, or has had a partner


def test_of_a_hot_key_the_newest_rows_stay() -> None:
    limits = "eviction = 'per_key', max_rows_per_key = 100"
    harness = Harness(*load_script(text_of("inner", 100_000, "FINAL", limits)))
    outcome = StepOutcome()
    for first in range(0, 3_000, 1_000):
        outcome = harness.step({"l": StepInput([(7, "", time) for time in range(first, first + 1_000)])})
    assert outcome.count("state_rows") == 100
    outcome = harness.step({"r": StepInput([(7, "", 0)])})
    assert {row[2] for _, row in outcome.changes} == set(range(2_900, 3_000))


def test_many_rows_beyond_a_limit_leave_large_segments() -> None:
    limits = "eviction = 'oldest', join_max_buffered_bytes = 1000000"
    harness = Harness(*load_script(text_of("inner", 10_000_000, "FINAL", limits)))
    outcome = StepOutcome()
    rows = 50_000  # of 40 bytes and more each: 25,000 stay
    for first in range(0, 4 * rows, rows):
        fed = [(time % 1_000, "", time) for time in range(first, first + rows)]
        outcome = harness.step({"l": StepInput(fed)})
        assert outcome.count("state_bytes") <= 1_000_000
    held = outcome.count("state_rows")
    assert held == 1_000_000 // 40
    assert outcome.count("evicted") == 4 * rows - held
    outcome = harness.step({"r": StepInput([(time % 1_000, "", time) for time in range(1_000)])})
    assert len(outcome.changes) == held  # a step joins first, and then evicts: here the new rows, the oldest of all
    assert _evicted(outcome.counters)["r.oldest"] == 1_000


def test_an_idle_bucket_makes_room_for_others() -> None:
    limits = "eviction = 'oldest', join_max_buffered_bytes = 4000"
    harness = Harness(*load_script(text_of("inner", 100_000, "FINAL", limits, buckets=2)))
    sizes = []
    for key, rows in ((1, 60), (2, 300)):
        for step in range(5):
            fed = [(key, "", 1_000 * key * step + number) for number in range(rows)]
            sizes.append(harness.step({"l": StepInput(fed)}).count("state_bytes"))
    assert max(sizes) <= 4_000
    assert sizes[-1] > 3_500


def test_another_policy_forgets_when_keys_were_used() -> None:
    def harness_of(policy: str, before: Harness | None = None) -> Harness:
        limits = f"eviction = '{policy}', join_max_buffered_bytes = 4000"
        harness = Harness(*load_script(text_of("inner", 100_000, "FINAL", limits)))
        if before is not None:
            harness._stores = before._stores
        return harness

    least_used = harness_of("lru")
    for step in range(10):
        least_used.step({"l": StepInput([(number, "", 100 * step + number) for number in range(10)])})
    harness = harness_of("oldest", least_used)
    outcome = harness.step({"l": StepInput([(1, "", 2_000)])})
    assert outcome.count("state_bytes") == 40 * outcome.count("state_rows")


def test_uses_of_keys_are_forgotten_with_their_rows() -> None:
    limits = "eviction = 'lru', join_max_buffered_bytes = 1000000"
    harness = Harness(*load_script(text_of("inner", 10, "FINAL", limits)))
    sizes = []
    for step in range(8):
        rows = [(1_000 * step + number, "", 100 * step) for number in range(1_000)]
        outcome = harness.step({"l": StepInput(rows), "r": StepInput([(-1, "", 100 * step)])})
        sizes.append(outcome.count("state_bytes"))
    assert max(sizes) <= 1_001 * 40 + 4_200 * 28  # rows, and at most twice as many notes and a few
    assert harness.step({}, [END]).count("state_bytes") == 0


def test_a_key_beyond_its_rows_stops_the_query_by_default() -> None:
    harness = Harness(*load_script(text_of("left", 100, "FINAL", "max_rows_per_key = 2")))
    harness.step({"l": StepInput([(1, "", 1), (1, "", 2), (None, "", 3), (None, "", 4), (None, "", 5)])})
    with pytest.raises(LimitError, match="more rows than max_rows_per_key = 2 allows"):
        harness.step({"l": StepInput([(1, "", 3)])})


def test_a_row_that_alone_exceeds_the_limit_stops_the_query() -> None:
    limits = "eviction = 'oldest', join_max_buffered_bytes = 1000"
    harness = Harness(*load_script(text_of("left", 100, "FINAL", limits)))
    harness.step({"l": StepInput([(1, "", 1)])})
    with pytest.raises(LimitError, match="a row takes 2,041 bytes, and the whole join may hold 1,000"):
        harness.step({"l": StepInput([(1, "x" * 2_000, 2)])})


def _evicted(counters: dict[str, int]) -> Counter[str]:
    names = ((name.split(".", 2), count) for name, count in counters.items())
    return Counter({parts[2]: count for parts, count in names if parts[1] == "evicted"})
