"""A chart of the columns of a table: which columns it takes, and what of them is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.charts.drawing import MOST_SERIES, WIDTH, Bars, Points, bars_picture, lines_picture
from watersmeet.charts.scales import day_text, number_text, number_ticks, tick_texts, time_text, time_ticks
from watersmeet.errors import BindError, ConfigError, LimitError, did_you_mean
from watersmeet.html import page_part, paragraph

MOST_BARS = 100
_HALF_DAY = 43_200_000_000


class Kind(StrEnum):
    """How a chart draws its values."""

    LINE = "line"
    BAR = "bar"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of some columns of a result. Notebooks show it."""

    svg: str
    """The chart as an SVG element, without scripts and anything from elsewhere."""
    note: str = ""
    """What was left out, if anything was."""

    def _repr_html_(self) -> str:
        return page_part(f"<div>{self.svg}</div>", paragraph(self.note, "dim") if self.note else "")


def chart_of(rows: pa.Table, x: str, y: str | Sequence[str], kind: str) -> Chart:
    """Return a chart of the columns ``y`` over the column ``x``.

    Raises ``ConfigError`` for another ``kind`` and too many columns, ``BindError`` for a column that is not there or
    cannot be drawn, ``LimitError`` for too many bars.
    """
    try:
        wanted = Kind(kind)
    except ValueError:
        known = [each.value for each in Kind]
        raise ConfigError(
            f"there are no charts of kind {kind!r}", detail=f"kinds: {', '.join(known)}", hint=did_you_mean(kind, known)
        ) from None
    names = [y] if isinstance(y, str) else list(y)
    if not 1 <= len(names) <= MOST_SERIES:
        raise ConfigError(f"a chart has 1 to {MOST_SERIES} columns y, but {len(names)} were given")
    across = _column(rows, x, "x")
    values = [_numbers(rows, name) for name in names]
    return _bars(across, x, names, values) if wanted is Kind.BAR else _lines(across, x, names, values)


def _lines(across: pa.ChunkedArray, x: str, names: Sequence[str], values: Sequence[list[float | None]]) -> Chart:
    is_date = pa.types.is_date(across.type)
    is_time = pa.types.is_timestamp(across.type) or is_date
    if not is_time and not _is_number(across.type):
        raise BindError(
            f"x: column {x} ({across.type}) is neither a number nor a time, so no line can be drawn over it",
            hint="kind='bar' draws a bar for each of its values",
        )
    places = _micros(across) if is_time else _floats(across)
    known = sorted((place, row) for row, place in enumerate(places) if place is not None)
    low, high = (known[0][0], known[-1][0]) if known else (0.0, 0.0)
    if low == high:
        beside = _HALF_DAY if is_date else 500_000 if is_time else 0.5 * max(abs(low), 1)
        low, high = low - beside, high + beside
    series = []
    for name, column in zip(names, values, strict=True):
        points = _thinned([(place, column[row]) for place, row in known], low, high)
        texts = [
            f"{_place_text(place, is_time=is_time, is_date=is_date)}: {name} {number_text(value)}"
            for place, value in points
            if value is not None
        ]
        series.append(Points(name, points, texts))
    ticks = _ticks(low, high, is_time=is_time, is_date=is_date) if known else []
    has_clock = is_time and any(":" in text for _, text in ticks)
    axis = f"{x} ({day_text(int(low), int(high))})" if has_clock else x
    label = f"{', '.join(names)} over {x}: {len(known):,} points; {_extremes(names, values)}"
    return Chart(lines_picture(series, axis, ticks, (low, high), label), _note(len(places) - len(known), x))


def _place_text(place: float, *, is_time: bool, is_date: bool) -> str:
    if not is_time:
        return number_text(place)
    return time_text(int(place))[: len("2026-01-01") if is_date else None]


def _ticks(low: float, high: float, *, is_time: bool, is_date: bool) -> list[tuple[float, str]]:
    if is_time:
        return [(float(place), text) for place, text in time_ticks(int(low), int(high), days=is_date)]
    found = number_ticks(low, high)
    return [(tick, text) for tick, text in zip(found, tick_texts(found), strict=True) if low <= tick <= high]


def _bars(across: pa.ChunkedArray, x: str, names: Sequence[str], values: Sequence[list[float | None]]) -> Chart:
    if len(across) > MOST_BARS:
        raise LimitError(
            f"a chart has at most {MOST_BARS} bars for each column, but the result has {len(across):,} rows",
            hint="aggregate or LIMIT the rows, or draw a line: kind='line'",
        )
    categories = ["NULL" if each is None else str(each) for each in across.to_pylist()]
    series = [Bars(name, column) for name, column in zip(names, values, strict=True)]
    label = f"{', '.join(names)} by {x}: {len(categories)} bars; {_extremes(names, values)}"
    return Chart(bars_picture(series, x, categories, label))


def _extremes(names: Sequence[str], values: Sequence[list[float | None]]) -> str:
    said = []
    for name, column in zip(names, values, strict=True):
        known = [value for value in column if value is not None]
        if known:
            said.append(f"{name} from {number_text(min(known))} to {number_text(max(known))}")
        else:
            said.append(f"{name} has no values")
    return "; ".join(said)


def _note(left_out: int, x: str) -> str:
    if not left_out:
        return ""
    return f"{left_out:,} {'row' if left_out == 1 else 'rows'} without a value of {x} left out"


def _thinned(
    points: Sequence[tuple[float, float | None]], low: float, high: float
) -> Sequence[tuple[float, float | None]]:
    """Of many points those that can be seen: on each pixel the first, the least, the greatest, the last, and a gap."""
    if len(points) <= 4 * WIDTH:
        return points
    kept: list[tuple[float, float | None]] = []
    begin = 0
    while begin < len(points):
        pixel = int((points[begin][0] - low) / (high - low) * WIDTH)
        end = begin
        while end < len(points) and int((points[end][0] - low) / (high - low) * WIDTH) == pixel:
            end += 1
        rows = range(begin, end)
        known = [(value, row) for row in rows if (value := points[row][1]) is not None]
        gap = next((row for row in rows if points[row][1] is None), begin)
        seen = {begin, end - 1, gap, *([min(known)[1], max(known)[1]] if known else [])}
        kept += (points[row] for row in sorted(seen))
        begin = end
    return kept


# -- columns -----------------------------------------------------------------------------------------------------------


def _column(rows: pa.Table, name: str, role: str) -> pa.ChunkedArray:
    found = [place for place, each in enumerate(rows.column_names) if each == name]
    if len(found) == 1:
        return rows.column(found[0])
    if found:
        raise BindError(f"{role}: several columns are called {name}", hint="name them with AS")
    raise BindError(
        f"{role}: there is no column {name}",
        detail=f"columns: {', '.join(rows.column_names)}",
        hint=did_you_mean(name, rows.column_names),
    )


def _numbers(rows: pa.Table, name: str) -> list[float | None]:
    """The values of a column y; NaN and infinities are no values."""
    column = _column(rows, name, "y")
    if not _is_number(column.type):
        numbers = [field.name for field in rows.schema if _is_number(field.type)]
        raise BindError(
            f"y: column {name} ({column.type}) holds no numbers",
            detail=f"columns of numbers: {', '.join(numbers) or 'none'}",
            hint="CAST it, or count its values in the query",
        )
    return _floats(column)


def _is_number(type: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    return any(test(type) for test in tests)


def _floats(column: pa.ChunkedArray) -> list[float | None]:
    return [
        None if value is None or not isfinite(value) else value
        for value in pc.cast(column, pa.float64(), safe=False).to_pylist()
    ]


def _micros(column: pa.ChunkedArray) -> list[float | None]:
    """Times as microseconds since 1970, in their own zone."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.local_timestamp(column)
    whole: list[float | None] = pc.cast(pc.cast(column, pa.timestamp("us"), safe=False), pa.int64()).to_pylist()
    return whole
