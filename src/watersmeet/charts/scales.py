"""Round values for the axes of charts, and how they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _DAY = 1_000_000, 86_400_000_000
#: Steps between times in microseconds, where months do not matter.
_STEPS = tuple(
    [power * digit for power in (1, 10, 100, 1000, 10_000, 100_000) for digit in (1, 2, 5)]
    + [seconds * _SECOND for seconds in (1, 2, 5, 10, 15, 30)]
    + [minutes * 60 * _SECOND for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)]
    + [days * _DAY for days in (1, 2, 7, 14)]
)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000)
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def number_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most ``most`` + 1 round numbers, of which the first is at most ``low`` and the last at least ``high``.

    >>> number_ticks(0, 92), number_ticks(-0.3, 1)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [-0.5, 0.0, 0.5, 1.0])
    """
    power = 10.0 ** floor(log10((high - low) / most))
    steps = [digit * power for digit in (1, 2, 5, 10, 20)]
    step = next((step for step in steps if ceil(high / step) - floor(low / step) <= most), steps[-1])
    first, last = floor(low / step), ceil(high / step)
    # a quotient of whole numbers has no digits that were not meant: 3 * 0.1 has
    return [round(number * step, 12 - floor(log10(step))) for number in range(first, last + 1)]


def number_text(value: float) -> str:
    """Return a number with three or four digits, or as much as it takes to tell it from those beside it.

    >>> [number_text(value) for value in (0.0, 0.25, 1500.0, 2_500_000.0, 1e-7, -3.0)]
    ['0', '0.25', '1,500', '2.5M', '1e-07', '-3']
    """
    for unit, name in _UNITS:
        if abs(value) >= unit:
            return f"{value / unit:.6g}{name}" if abs(value) < 1e15 else f"{value:.4g}"
    if value == round(value):
        return f"{value:,.0f}"
    return f"{value:.6g}"


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Return the ticks of an axis as texts, in one unit.

    >>> tick_texts([0.0, 500_000.0, 1_000_000.0]), tick_texts([0.0, 1.5])
    (['0', '0.5M', '1M'], ['0', '1.5'])
    """
    greatest = max(map(abs, ticks))
    unit, name = next(((unit, name) for unit, name in _UNITS if unit <= greatest < 1e15), (1.0, ""))
    return [f"{number_text(tick / unit)}{name if tick else ''}" for tick in ticks]


def time_ticks(low: int, high: int, *, days: bool = False, most: int = 5) -> list[tuple[int, str]]:
    """Return round times within a span of microseconds since 1970, at most about ``most``, and how they are written.

    Midnight among other times is written as its day. ``days``: nothing is shorter than a day.
    """
    steps = [step for step in _STEPS if step >= _DAY] if days else _STEPS
    step = next((step for step in steps if (high - low) // step <= most), None)
    if step is None:
        return [(time, _moment(time).strftime("%Y-%m")) for time in _months(low, high, most)]
    times = range(-(-low // step) * step, high + 1, step)
    if step >= _DAY:
        return [(time, _moment(time).strftime("%Y-%m-%d")) for time in times]
    return [(time, _clock(time, step)) for time in times]


def day_text(low: int, high: int) -> str:
    """Return the day, or the days, of a span, for what its ticks do not say."""
    first, last = (f"{_moment(time):%Y-%m-%d}" for time in (low, high))
    return first if first == last else f"{first} to {last}"


def time_text(time: int) -> str:
    """Return a time as text."""
    return _moment(time).replace(tzinfo=None).isoformat(" ")


def _clock(time: int, step: int) -> str:
    moment = _moment(time)
    if time % _DAY == 0:
        return f"{moment:%m-%d}"
    if step >= 60 * _SECOND:
        return f"{moment:%H:%M}"
    text = f"{moment:%H:%M:%S}"
    return text if step >= _SECOND else f"{text}.{moment:%f}".rstrip("0").rstrip(".")


def _months(low: int, high: int, most: int) -> Iterator[int]:
    begin, end = _moment(low), _moment(high)
    span = (end.year - begin.year) * 12 + end.month - begin.month
    step = next((step for step in _MONTHS if span // step <= most), _MONTHS[-1])
    for number in range(begin.year * 12 // step * step, end.year * 12 + end.month, step):
        year, month = divmod(number, 12)
        if year >= 1 and low <= (time := _micros(datetime(year, month + 1, 1, tzinfo=UTC))) <= high:
            yield time


def _moment(time: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
