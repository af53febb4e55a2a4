"""Steps of functions that never fall, and the way back: SQL of DuckDB over 128-bit numbers, so that nothing overflows.

Each step maps whole numbers to whole numbers, times in microseconds since 1970 among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

SECOND = 1_000_000
DAY = 86_400 * SECOND


@dataclass(frozen=True, slots=True)
class Step:
    """A step ``of`` a number ``{x}``, and the ``least`` number at which it gives ``{x}`` or more.

    So many neighbouring values have at most ``per`` times as many arguments, and ``more``.
    """

    of: str
    least: str
    per: Fraction = Fraction(1)
    more: int = 0

    def width(self, values: int) -> int:
        """The most arguments that so many neighbouring values have."""
        return ceil(values * self.per) + self.more


def shifted(by: int) -> Step:
    """``x + by``."""
    return Step(f"({{x}} + {by})", f"({{x}} - {by})")


def multiplied(factor: int) -> Step:
    """``x * factor``."""
    return Step(f"({{x}} * {factor})", f"(-{_floor('(-{x})', factor)})", Fraction(1, factor))


def quotient(by: int) -> Step:
    """``x DIV by``: what follows the point is dropped, so the numbers from 1 - by to by - 1 have the quotient zero."""
    least = f"({{x}} * {by} - CASE WHEN {{x}} > 0 THEN 0 ELSE {by - 1} END)"
    return Step(f"({{x}} // {by})", least, Fraction(by), by - 1)


def floor(by: int) -> Step:
    """The greatest whole number that is not above ``x / by``."""
    return Step(_floor("{x}", by), f"({{x}} * {by})", Fraction(by))


def cut(unit: str, length: int) -> Step:
    """A time cut to a unit of the calendar in UTC, which has at most a length; a week begins on Monday."""
    return Step(_micros(_cut(unit, "{x}")), _micros(f"{_cut(unit, '{x} - 1')} + INTERVAL 1 {unit}"), more=length - 1)


def year() -> Step:
    """The year of a time in UTC."""
    first = "CAST(make_date(CAST({x} AS BIGINT), 1, 1) AS TIMESTAMP)"
    return Step(f"CAST(year({_time('{x}')}) AS HUGEINT)", _micros(first), Fraction(366 * DAY))


def _floor(x: str, by: int) -> str:
    return f"(({x} - ({x} % {by} + {by}) % {by}) // {by})"


def _time(x: str) -> str:
    return f"make_timestamp(CAST({x} AS BIGINT))"


def _cut(unit: str, x: str) -> str:
    return f"date_trunc('{unit}', {_time(x)})"


def _micros(time: str) -> str:
    return f"CAST(epoch_us({time}) AS HUGEINT)"
