"""Intervals of several units, compared with what Python makes of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from watersmeet.expressions.times import interval_micros
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import Select

Part = tuple[int, str]

UNITS = st.sampled_from(("WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"))
PARTS = st.lists(st.tuples(st.integers(-1000, 1000), UNITS), min_size=1, max_size=4)
SPANS = ("DAY", "HOUR", "MINUTE", "SECOND")
SEPARATORS = " ::"


def length(parts: Sequence[Part]) -> int:
    """How long parts are together, in microseconds."""
    return (
        sum((timedelta(**{f"{unit.lower()}s": amount}) for amount, unit in parts), timedelta()) // timedelta.resolution
    )


def difference(interval: str) -> exp.Expr:
    """The expression that an interval is taken away in, parsed."""
    [statement] = parse(f"SELECT ts - {interval} - 1 AS t FROM a")
    assert isinstance(statement, Select)
    found: exp.Expr = statement.query.select.expressions[0].unalias()
    return found


def micros(interval: str) -> int:
    """The length of an interval beside a time, which must be taken away as a whole."""
    whole = difference(interval)
    assert isinstance(whole.this.expression, exp.Interval), repr(whole)
    return interval_micros(whole.this.expression)


@given(PARTS, st.booleans(), st.booleans())
def test_amounts_with_units(parts: list[Part], quotes: bool, is_plural: bool) -> None:
    quote, plural = "'" * quotes, "S" * is_plural
    written = " ".join(
        f"{'-' if amount < 0 else ''}{quote}{abs(amount)}{quote} {unit}{plural}" for amount, unit in parts
    )
    assert micros(f"INTERVAL {written}") == length(parts)


@given(PARTS, st.booleans())
def test_a_text(parts: list[Part], is_plural: bool) -> None:
    text = " ".join(f"{amount} {unit.lower()}{'s' * is_plural}" for amount, unit in parts)
    assert micros(f"INTERVAL '{text}'") == length(parts)


@given(st.integers(0, 2), st.integers(2, 4), st.lists(st.integers(0, 99), min_size=4, max_size=4), st.booleans())
def test_a_span(start: int, stop: int, amounts: list[int], is_negative: bool) -> None:
    units = SPANS[start : max(stop, start + 2)]
    separators = ("", *SEPARATORS[start:])
    text = "".join(separator + str(amount) for separator, amount, _ in zip(separators, amounts, units, strict=False))
    sign = -1 if is_negative else 1
    expected = sign * length(list(zip(amounts, units, strict=False)))
    assert micros(f"INTERVAL '{'-' * is_negative}{text}' {units[0]} TO {units[-1]}") == expected


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 93_784_500_000),
        ("INTERVAL '0.1' DAY '1' HOUR", 12_240_000_000),
        ("INTERVAL '1.5 minutes'", 90_000_000),
        ("INTERVAL ' 1minute  3seconds '", 63_000_000),
    ],
)
def test_parts_of_units(interval: str, expected: int) -> None:
    assert micros(interval) == expected


@pytest.mark.parametrize(
    "interval", ["INTERVAL 2 YEARS 3 MONTHS", "INTERVAL '8 quarters 3 months'", "INTERVAL '2-3' YEAR TO MONTH"]
)
def test_months_stay_months(interval: str) -> None:
    found = difference(interval).this.expression
    assert found.sql(dialect="spark") == "INTERVAL '27' MONTH"
