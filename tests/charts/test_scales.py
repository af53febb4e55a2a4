"""Round values for axes: they enclose what is drawn, are few, and are written so that they can be told apart."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime, timedelta
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.charts import scales
from watersmeet.charts.scales import day_text, number_ticks, tick_texts, time_text, time_ticks

NUMBERS = st.floats(-1e12, 1e12, allow_subnormal=False)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def test_the_examples_hold() -> None:
    assert doctest.testmod(scales).failed == 0


@given(NUMBERS, NUMBERS)
def test_numbers_are_enclosed_by_a_few_ticks(one: float, other: float) -> None:
    low, high = sorted((one, other))
    if high - low <= 1e-9 * max(abs(low), abs(high), 1):
        return
    ticks = number_ticks(low, high)
    assert 2 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))
    assert all(isfinite(tick) for tick in ticks)
    slack = 1e-9 * max(abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack


@given(st.floats(0.001, 1e14), st.integers(1, 5))
def test_ticks_can_be_told_apart(high: float, digits: int) -> None:
    texts = tick_texts(number_ticks(0, high))
    assert len(set(texts)) == len(texts), texts


@given(TIMES, TIMES)
def test_times_are_within_their_span_and_few(one: datetime, other: datetime) -> None:
    low, high = sorted((each - EPOCH) // timedelta(microseconds=1) for each in (one, other))
    ticks = time_ticks(low, high)
    assert len(ticks) <= 7
    assert all(low <= time <= high for time, _ in ticks)


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        ("2026-01-01 10:00:00", "2026-01-01 10:00:04", ["10:00:00", "10:00:01", "10:00:02", "10:00:03", "10:00:04"]),
        ("2026-01-01 23:00:00", "2026-01-02 01:10:00", ["23:00", "23:30", "01-02", "00:30", "01:00"]),
        ("2026-01-01 10:00:00", "2026-01-01 10:00:00.4", [f"10:00:00{end}" for end in ("", ".1", ".2", ".3", ".4")]),
        ("2026-01-01", "2026-01-03", ["01-01", "12:00", "01-02", "12:00", "01-03"]),
        ("2026-02-26", "2026-03-02", ["2026-02-26", "2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]),
        ("2025-11-15", "2026-03-20", ["2025-12", "2026-01", "2026-02", "2026-03"]),
        ("2000-01-01", "2025-01-01", ["2000-01", "2005-01", "2010-01", "2015-01", "2020-01", "2025-01"]),
    ],
)
def test_times_are_round_in_their_own_units(low: str, high: str, texts: list[str]) -> None:
    assert [text for _, text in time_ticks(micros(low), micros(high))] == texts


@given(TIMES, TIMES)
def test_days_are_never_cut(one: datetime, other: datetime) -> None:
    low, high = sorted((each - EPOCH) // timedelta(microseconds=1) for each in (one, other))
    assert all(time % 86_400_000_000 == 0 and ":" not in text for time, text in time_ticks(low, high, days=True))


def test_what_ticks_do_not_say() -> None:
    assert day_text(micros("2026-01-01 10:00"), micros("2026-01-01 11:00")) == "2026-01-01"
    assert day_text(micros("2026-01-01 10:00"), micros("2026-01-02 11:00")) == "2026-01-01 to 2026-01-02"
    assert time_text(micros("2026-01-01 10:00:00.5")) == "2026-01-01 10:00:00.500000"
