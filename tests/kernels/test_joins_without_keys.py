"""Windowed joins that compare no columns for equality, against two nested loops; DuckDB joins them by spans of time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAM = "CREATE STREAM {} (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '99' SECONDS)"
KINDS = ["INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"]
VALUES, TIMES = st.one_of(st.none(), st.integers(0, 2)), st.integers(-25, 25)
Rows = list[tuple[int, int | None, int]]


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    drawn = draw(st.lists(st.tuples(VALUES, TIMES), max_size=12))
    return [(id, value, time) for id, (value, time) in enumerate(drawn)]


def expected(kind: str, left: Rows, right: Rows, lower: int, upper: int) -> Counter[Any]:
    def matches(one: tuple[int, int | None, int], other: tuple[int, int | None, int]) -> bool:
        is_close = lower <= other[2] - one[2] <= upper
        return is_close and one[1] is not None and other[1] is not None and one[1] < other[1]

    pairs = [(one[0], other[0]) for one in left for other in right if matches(one, other)]
    lonely = [one[0] for one in left if one[0] not in {pair[0] for pair in pairs}]
    if kind in ("LEFT SEMI", "LEFT ANTI"):
        matched = Counter((id,) for id in {pair[0] for pair in pairs})
        return Counter((id,) for id in lonely) if kind == "LEFT ANTI" else matched
    found = Counter[Any](pairs)
    if kind in ("LEFT", "FULL"):
        found.update((id, None) for id in lonely)
    if kind in ("RIGHT", "FULL"):
        found.update((None, other[0]) for other in right if other[0] not in {pair[1] for pair in pairs})
    return found


@pytest.mark.parametrize("settings", ["", " SETTINGS eviction = 'oldest', join_max_buffered_bytes = '1MB'"])
@pytest.mark.parametrize("kind", KINDS)
@given(left=rows(), right=rows(), window=st.tuples(st.integers(-12, 12), st.integers(0, 12)), cut=st.integers(0, 12))
def test_all_partners_are_found_once(
    kind: str, settings: str, left: Rows, right: Rows, window: tuple[int, int], cut: int
) -> None:
    lower, upper = window[0], window[0] + window[1]
    streams = ";".join(f"{STREAM.format(name)} WITH (event_time_unit = 's')" for name in "lr")
    items = "l.id AS a" if "LEFT " in kind else "l.id AS a, r.id AS b"
    bounds = f"r.ts - l.ts BETWEEN {lower} AND {upper}"
    query = f"SELECT {items} FROM l {kind} JOIN r ON l.v < r.v AND {bounds} EMIT FINAL{settings}"
    harness, found = Harness(*load_script(f"{streams}; {query}")), Counter[Any]()
    for part in (slice(0, cut), slice(cut, None)):
        outcome = harness.step({"l": StepInput(left[part]), "r": StepInput(right[part])})
        found.update(row for _, row in outcome.changes)
    found.update(row for _, row in harness.step({}, [Event(EventKind.END)]).changes)
    assert found == expected(kind, left, right, lower, upper)
