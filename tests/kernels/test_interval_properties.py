"""The windowed join against two nested loops, for every kind, over random rows in random batches with restarts."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ALL
from tests.kernels.models import (
    KINDS,
    STREAMS,
    Feed,
    Model,
    Shape,
    SlidingModel,
    cut,
    disorder,
    feed,
    make_harness,
    rows_of,
    shapes,
)
from tests.support.reference import Kind
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.state.working_set import WorkingSet
from watersmeet.testing.harness import Harness

per_kind = settings(max_examples=settings.default.max_examples // 4 if settings.default else 25)


def check(shape: Shape, delays: dict[str, int], steps: list[Feed]) -> Model:
    """Run the steps and the end of input; after each, output, late counts and state must be just the model's."""
    harness, model = make_harness(shape, delays), (SlidingModel if shape.probe else Model)(shape, delays)
    seen: Counter[Any] = Counter()
    emitted: list[Any] = []
    counts_rows = shape.residual is None or not shape.residual.one_sided  # a filter takes rows before they count
    for step in steps:
        outcome = feed(harness, step)
        model.take(step)
        for weight, row in outcome.changes:
            assert weight > 0 or shape.changelog, "EMIT FINAL took a row back"
            seen[row] += weight
            emitted.append(row)
        assert min(seen.values(), default=0) >= 0
        assert +seen == model.results()
        if counts_rows:
            assert {name: outcome.count("late", (name,)) for name in STREAMS} == {n: model.late[n] for n in STREAMS}
            assert outcome.count("state_rows") == model.state_rows()
            assert outcome.count("reopened") == model.reopened
    outcome = harness.step({}, [Event(EventKind.END)])
    for weight, row in outcome.changes:
        assert weight > 0 or shape.changelog
        seen[row] += weight
        emitted.append(row)
    model.end()
    if shape.is_in_order:
        times = [shape.probe_time(row) for row in emitted]
        assert times == sorted(times)
    assert min(seen.values(), default=0) >= 0
    assert +seen == model.results()
    assert outcome.count("state_rows") == 0
    return model


@pytest.mark.parametrize("kind", KINDS)
@per_kind
@given(data=st.data())
def test_a_delay_that_covers_all_disorder_gives_the_exact_join(kind: Kind, data: st.DataObject) -> None:
    shape = data.draw(shapes(kind))
    rows = data.draw(st.composite(rows_of)())
    delays = {name: disorder(rows, name) for name in STREAMS}
    model = check(shape, delays, data.draw(st.composite(cut)(rows)))
    assert not model.late
    assert sum(len(each) for each in model.accepted.values()) == len(rows)


@pytest.mark.parametrize("kind", KINDS)
@per_kind
@given(data=st.data())
def test_rows_on_time_are_joined_exactly_however_late_the_others_are(kind: Kind, data: st.DataObject) -> None:
    shape = data.draw(shapes(kind))
    delays = {name: data.draw(st.integers(0, 3)) for name in STREAMS}
    check(shape, delays, data.draw(st.composite(cut)(data.draw(st.composite(rows_of)()))))


@pytest.mark.parametrize("kind", KINDS)
@per_kind
@given(data=st.data())
def test_rows_close_windows_of_their_own(kind: Kind, data: st.DataObject) -> None:
    shape = data.draw(shapes(kind, windows=True))
    delays = {name: data.draw(st.integers(0, 3)) for name in STREAMS}
    check(shape, delays, data.draw(st.composite(cut)(data.draw(st.composite(rows_of)()))))


@pytest.mark.parametrize("kind", ["semi", "anti"])
@per_kind
@given(data=st.data())
def test_rows_that_meet_what_or_combines_with_exists_need_no_partner(kind: Kind, data: st.DataObject) -> None:
    shape = data.draw(shapes(kind, alternatives=True))
    delays = {name: data.draw(st.integers(0, 3)) for name in STREAMS}
    check(shape, delays, data.draw(st.composite(cut)(data.draw(st.composite(rows_of)()))))


@pytest.mark.parametrize("kind", ["left", "right", "full", "anti"])
@per_kind
@given(data=st.data())
def test_duckdb_pads_as_arrow_does_where_rows_are_many(kind: Kind, data: st.DataObject) -> None:
    shape = data.draw(shapes(kind))
    rows = data.draw(st.composite(rows_of)())
    delays = {name: data.draw(st.integers(0, 3)) for name in STREAMS}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WorkingSet, "few_rows", lambda *_: None)
        check(shape, delays, data.draw(st.composite(cut)(rows)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("changelog", [False, True])
def test_rows_and_marks_of_merged_segments_still_count(changelog: bool) -> None:
    """A window so long that every segment lies in one partition: four of a size become one, again and again."""
    rng = random.Random(1)
    shape = Shape("full", changelog, -500, 500, (("k", False),), None, 0, 1)
    steps = [
        Feed(tuple((name, (rng.randrange(12), "a", None, now)) for name in STREAMS), restart=now % 7 == 0)
        for now in range(30)
    ]
    check(shape, {"l": 0, "r": 0}, steps)


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changelog", [False, True])
def test_state_stays_flat_past_the_first_window(kind: Kind, changelog: bool) -> None:
    """Two rows a step, half of them with partners: the window is over after 6 steps, then nothing piles up."""
    shape = Shape(kind, changelog, -3, 2, (("k", False),), None, 0, 1)
    harness = make_harness(shape, {"l": 0, "r": 0})
    sizes, segments = [], []
    steps = 40 if ALL else 24
    for now in range(steps):
        outcome = feed(harness, Feed((("l", (now % 3, "a", now % 2, now)), ("r", (now % 2, "a", 0, now)))))
        sizes.append(outcome.count("state_rows"))
        segments.append(outcome.count("segments"))
    assert max(sizes) <= 7  # l for 3 times (now included), r for 4
    assert max(segments[steps // 2 :]) <= max(segments[: steps // 2])


def stored_rows(harness: Harness) -> dict[str, int]:
    """Rows in the segments of all buckets, by relation."""
    found: Counter[str] = Counter()
    for store in harness._stores.values():
        for segment in json.loads(store["manifest"])["segments"]:
            found[segment["relation"]] += segment["rows"]
    return dict(found)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("kind", "relation"),
    [
        ("left", "left"),
        ("full", "right"),
        ("semi", "left"),
        ("anti", "left"),
        # their right stream is the kernel's left side
        ("right_semi", "left"),
        ("right_anti", "left"),
    ],
)
def test_marks_go_with_their_rows(kind: Kind, relation: str) -> None:
    """Each row finds its partner one step later, so that each step brings a mark; old marks are forgotten."""
    shape = Shape(kind, False, -8, 8, (("k", False),), None, 0, 1)
    harness = make_harness(shape, {"l": 0, "r": 0})
    marks, rows = [], []
    steps = 60 if ALL else 40
    for now in range(steps):
        first, second = STREAMS if (relation == "left") is not kind.startswith("right_") else STREAMS[::-1]
        feed(harness, Feed(((first, (now, "a", 0, now)), (second, (now - 1, "a", 0, now)))))
        stored = stored_rows(harness)
        marks.append(stored.get(f"{relation}_matched", 0))
        rows.append(sum(stored.values()))
    assert max(marks) >= 4, "the test should make marks"
    assert max(marks[steps // 2 :]) <= max(marks[: steps // 2])
    assert max(rows[steps // 2 :]) <= max(rows[: steps // 2])
