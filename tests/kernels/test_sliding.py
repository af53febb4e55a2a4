"""The sliding join against a nested-loop join: what comes, when, in which order, and what is kept."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.models import KINDS, STREAMS, Feed, Shape, cut, feed, make_harness, rows_of, shapes
from tests.kernels.test_interval_properties import check
from tests.support.reference import Kind
from watersmeet.engine.control_events import Event, EventKind

per_kind = settings(max_examples=settings.default.max_examples // 4 if settings.default else 25)


@st.composite
def sliding(draw: st.DrawFn, kind: Kind) -> Shape:
    """The right stream probes, or the only one that has results, or with ORDER BY either one."""
    shape = draw(shapes(kind))
    ordered = draw(st.booleans())
    probe = draw(st.sampled_from(shape.sides)) if ordered else shape.sides[-1]
    return replace(shape, changelog=False, probe=probe, ordered=ordered, lateness=0)


@pytest.mark.parametrize("kind", KINDS)
@per_kind
@given(data=st.data())
def test_a_probe_row_is_answered_once_and_whole(kind: Kind, data: st.DataObject) -> None:
    shape = data.draw(sliding(kind))
    delays = {name: data.draw(st.integers(0, 3)) for name in STREAMS}
    check(shape, delays, data.draw(st.composite(cut)(data.draw(st.composite(rows_of)()))))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["inner", "right", "right_semi", "right_anti"])
def test_results_of_a_bucket_are_in_order_across_steps(kind: Kind) -> None:
    """Rows come in disorder, many at equal times."""
    rng = random.Random(7)
    shape = Shape(kind, False, -4, 3, (("k", False),), None, 0, 1, probe="r")
    harness = make_harness(shape, dict.fromkeys(STREAMS, 8))
    emitted: list[Any] = []
    for step in range(12):
        rows = [(rng.choice(STREAMS), (rng.randrange(9), "a", 0, 5 * step + rng.randint(-8, 0))) for _ in range(20)]
        emitted += [row for _, row in feed(harness, Feed(tuple(rows), restart=step % 4 == 0)).changes]
    emitted += [row for _, row in harness.step({}, [Event(EventKind.END)]).changes]
    assert len(emitted) > 20
    times = [shape.probe_time(row) for row in emitted]
    assert times == sorted(times)
    assert len(set(times)) < len(times)
