"""Durations: one parser for settings, delays and the DataFrame API."""

from __future__ import annotations

import pytest

from watersmeet.settings.durations import duration_text, seconds, split_duration, unit_of


@pytest.mark.parametrize(
    ("text", "parts", "length"),
    [
        ("30 seconds", ("30", "SECOND"), 30.0),
        (" 1.5 Min", ("1.5", "MIN"), None),
        ("1.5m", ("1.5", "MINUTE"), 90.0),
        ("200ms", ("200", "MILLISECOND"), 0.2),
        ("2 DAYS", ("2", "DAY"), 172_800.0),
        ("7", ("7", ""), None),
        ("-5 s", ("-5", "SECOND"), None),
        ("3 rows", ("3", "ROWS"), None),
        ("1e3 us", ("1e3", "MICROSECOND"), 0.001),
    ],
)
def test_a_number_and_a_unit(text: str, parts: tuple[str, str], length: float | None) -> None:
    assert split_duration(text) == parts
    if length is not None:
        assert seconds(text) == pytest.approx(length)
    else:
        with pytest.raises(ValueError, match="write a number and a unit"):
            seconds(text)


@pytest.mark.parametrize("text", ["", "soon", "5 5", "s", "5 light years", "1..2 s"])
def test_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match="write a number and a unit"):
        split_duration(text)


def test_nothing_needs_no_unit_and_less_is_refused() -> None:
    assert seconds("0") == seconds("0 s") == 0
    with pytest.raises(ValueError, match="a duration is not negative"):
        seconds("-1 minutes")


def test_units_and_values_that_are_not_text() -> None:
    assert unit_of("parsec") is None
    assert seconds(2.5) == 2.5


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0 seconds"), (0.5, "0.5 seconds"), (1, "1 second"), (60, "1 minute"), (90, "90 seconds"), (7_200, "2 hours")],
)
def test_a_duration_in_words(length: float, text: str) -> None:
    assert duration_text(length) == text
    assert seconds(text) == length
