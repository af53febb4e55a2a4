"""The arithmetic of a window, against every pair of times one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.api import FOREVER, NEVER, JoinKind, Side
from watersmeet.kernels.match import SideColumns, WindowMatch

TIMES = range(-12, 13)
bound = st.none() | st.integers(-4, 4)


@st.composite
def windows(draw: st.DrawFn) -> WindowMatch:
    lower, upper = draw(bound), draw(bound)
    if lower is not None and upper is not None:
        lower, upper = min(lower, upper), max(lower, upper)
    return WindowMatch(JoinKind.INNER, SideColumns(()), SideColumns(()), (), lower, upper)


def match(window: WindowMatch, side: Side, own: int, other: int) -> bool:
    distance = other - own if side is Side.LEFT else own - other
    lower, upper = window.lower, window.upper
    return (lower is None or lower <= distance) and (upper is None or distance <= upper)


@given(window=windows(), low=st.integers(-3, 3), length=st.integers(0, 3))
@pytest.mark.parametrize("side", Side)
def test_partners_lie_just_between_those_times(side: Side, window: WindowMatch, low: int, length: int) -> None:
    others = range(low, low + length + 1)
    first, last = window.times_between(side, others[0], others[-1])
    assert [own for own in TIMES if first <= own <= last] == [
        own for own in TIMES if any(match(window, side, own, other) for other in others)
    ]


@given(window=windows(), frontier=st.integers(-3, 3))
@pytest.mark.parametrize("side", Side)
def test_a_row_is_closed_once_no_partner_can_come(side: Side, window: WindowMatch, frontier: int) -> None:
    may_come = range(frontier, 20)
    closed = window.closed_before(side, frontier)
    assert [own for own in TIMES if own < closed] == [
        own for own in TIMES if not any(match(window, side, own, other) for other in may_come)
    ]


@pytest.mark.parametrize("side", Side)
def test_the_ends_of_the_axis(side: Side) -> None:
    window = WindowMatch(JoinKind.INNER, SideColumns(()), SideColumns(()), (), -5, 5)
    assert window.closed_before(side, NEVER) == NEVER
    assert window.closed_before(side, FOREVER) == FOREVER
    first, last = window.times_between(side, FOREVER, NEVER)  # of no rows at all
    assert first > last
