"""Charts of tables: what is drawn where, what cannot be, and what a reader without eyes is told."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from watersmeet.charts import drawing
from watersmeet.charts.chart import Chart, chart_of
from watersmeet.errors import BindError, ConfigError, LimitError, WatersmeetError

EVIL = "<script>alert(1)</script>"
SVG = "{http://www.w3.org/2000/svg}"
TEN = dt.datetime(2026, 1, 1, 10)  # noqa: DTZ001
ROWS = pa.table(
    {
        "n": [3, 1, 2],
        "amount": [Decimal("30.00"), Decimal("10.00"), None],
        "other": [1.5, float("nan"), -1.5],
        "city": ["Rome", None, EVIL],
        "ts": [TEN + dt.timedelta(minutes=30 * number) for number in range(3)],
    }
)


def elements(chart: Chart, tag: str, kind: str = "") -> list[ET.Element]:
    """The elements of the picture, which is well-formed, by tag and class."""
    found = ET.fromstring(chart.svg).iter(f"{SVG}{tag}")
    return [each for each in found if kind in each.get("class", "").split() or not kind]


def texts(chart: Chart) -> list[str]:
    return [each.text or "" for each in elements(chart, "text")]


def titles(chart: Chart) -> list[str]:
    return [each.text or "" for each in elements(chart, "title")][1:]


def places(path: str) -> list[list[tuple[float, float]]]:
    """The points of a path, by its lines."""
    return [[(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", line)] for line in path.split("M")[1:]]


def test_a_line_goes_from_left_to_right_and_has_gaps_for_null() -> None:
    chart = chart_of(pa.table({"x": [4, 0, 1, 2, 3], "y": [8.0, 0.0, 4.0, None, 6.0]}), "x", "y", "line")
    (line,) = elements(chart, "path", "line")
    (first, second) = places(line.get("d") or "")
    # 0 to 8 are 180 pixels high
    assert [y for _, y in first] == [208, 118]
    assert [y for _, y in second] == [73, 28]
    (left, _), (quarter, _) = first
    (right, _) = second[-1]
    assert right == 466
    assert quarter - left == pytest.approx((right - left) / 4, abs=0.2)
    assert titles(chart) == ["0: y 0", "1: y 4", "3: y 6", "4: y 8"]


def test_a_point_alone_is_seen() -> None:
    chart = chart_of(pa.table({"x": [1, 2, 3], "y": [None, 5, None]}), "x", "y", "line")
    assert elements(chart, "path", "line") == []
    assert len(elements(chart, "circle")) == 1


def test_times_are_an_axis_with_their_day() -> None:
    chart = chart_of(ROWS, "ts", ["n", "amount"], "line")
    assert {"10:00", "10:15", "11:00", "ts (2026-01-01)", "n", "amount"} <= set(texts(chart))
    assert len(elements(chart, "path", "line")) == 2
    assert "2026-01-01 10:30:00: amount 10" in titles(chart)
    zoned = ROWS.set_column(4, "ts", ROWS["ts"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
    zoned = zoned.set_column(4, "ts", zoned["ts"].cast(pa.timestamp("us", "Asia/Tokyo")))
    assert {"19:00", "20:00"} <= set(texts(chart_of(zoned, "ts", "n", "line")))
    days = pa.table({"d": [dt.date(2026, 1, 1), dt.date(2026, 1, 3)], "y": [1, 2]})
    dated = chart_of(days, "d", "y", "line")
    assert [text for text in texts(dated) if "-" in text] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert titles(dated) == ["2026-01-01: y 1", "2026-01-03: y 2"]
    assert "2026-01-01" in texts(chart_of(days.slice(0, 1), "d", "y", "line"))


def test_bars_stand_on_zero_and_are_named() -> None:
    chart = chart_of(ROWS, "city", ["n", "other"], "bar")
    bars = [each for each in elements(chart, "rect") if each.get("width") != "11"]
    assert [each.get("class") for each in bars] == ["s0", "s0", "s0", "s1", "s1"]  # NaN is no value
    assert titles(chart) == ["Rome: n 3", "NULL: n 1", f"{EVIL}: n 2", "Rome: other 1.5", f"{EVIL}: other -1.5"]
    zero = float(bars[0].get("y") or 0) + float(bars[0].get("height") or 0)
    assert float(bars[-1].get("y") or 0) == pytest.approx(zero, abs=0.1)  # below the line
    assert float(bars[3].get("height") or 0) == pytest.approx(float(bars[-1].get("height") or 0), abs=0.1)
    assert float(bars[0].get("height") or 0) == pytest.approx(3 * float(bars[1].get("height") or 0), abs=0.2)


def test_values_are_text_and_never_markup() -> None:
    rows = pa.table({EVIL: [EVIL], "y": [1]})
    html = chart_of(rows, EVIL, "y", "bar")._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_what_is_drawn_is_also_said() -> None:
    (svg,) = re.findall(r'aria-label="(.*?)"', chart_of(ROWS, "n", ["amount", "other"], "line").svg)
    assert svg == "amount, other over n: 3 points; amount from 10 to 30; other from -1.5 to 1.5"
    nothing = pa.table({"x": pa.array([], pa.int64()), "y": pa.array([], pa.float64())})
    for kind in ("line", "bar"):
        chart = chart_of(nothing, "x", "y", kind)
        assert "y has no values" in chart.svg
        assert "(no values)" in texts(chart)


def test_rows_without_a_place_are_left_out_and_counted() -> None:
    chart = chart_of(pa.table({"x": [1, None, 2, None], "y": [1, 2, 3, 4]}), "x", "y", "line")
    assert len(elements(chart, "circle")) == 2
    assert "2 rows without a value of x left out" in chart._repr_html_()
    assert chart_of(ROWS, "n", "other", "line").note == ""


def test_of_many_points_the_extremes_stay() -> None:
    many = 100_000
    values = [0.0] * many
    values[54_321], values[77_777] = 9.0, -1.0
    chart = chart_of(pa.table({"x": range(many), "y": values}), "x", "y", "line")
    (line,) = elements(chart, "path", "line")
    (points,) = places(line.get("d") or "")
    heights = [y for _, y in points]
    assert len(points) < 2000
    assert (min(heights), max(heights)) == (40.0, 160.0)  # 9 and -1 of -5 to 10
    gap: list[float | None] = [*values]
    gap[30_077] = None
    (line,) = elements(chart_of(pa.table({"x": range(many), "y": gap}), "x", "y", "line"), "path", "line")
    assert len(places(line.get("d") or "")) == 2


@pytest.mark.parametrize("value", [7, 0, -7, 1e300, 5e-300])
@pytest.mark.parametrize("kind", ["line", "bar"])
def test_any_single_value_is_drawn(value: float, kind: str) -> None:
    chart = chart_of(pa.table({"x": [2.0], "y": [value]}), "x", "y", kind)
    assert elements(chart, "circle" if kind == "line" else "rect")
    assert "nan" not in chart.svg


@pytest.mark.parametrize(
    ("x", "y", "kind", "error", "said"),
    [
        (
            "n",
            "amonut",
            "line",
            BindError,
            ["y: there is no column amonut", "columns: n, amount,", "did you mean amount?"],
        ),
        ("m", "n", "line", BindError, ["x: there is no column m"]),
        (
            "n",
            "city",
            "line",
            BindError,
            ["y: column city (string) holds no numbers", "columns of numbers: n, amount, other"],
        ),
        ("city", "n", "line", BindError, ["x: column city (string) is neither a number nor a time", "kind='bar'"]),
        (
            "n",
            "n",
            "lines",
            ConfigError,
            ["there are no charts of kind 'lines'", "kinds: line, bar", "did you mean line?"],
        ),
        ("n", [], "line", ConfigError, ["a chart has 1 to 6 columns y, but 0 were given"]),
        ("n", ["n"] * 7, "line", ConfigError, ["1 to 6 columns y, but 7"]),
    ],
)
def test_what_cannot_be_drawn_is_said(
    x: str, y: str | list[str], kind: str, error: type[WatersmeetError], said: list[str]
) -> None:
    with pytest.raises(error) as raised:
        chart_of(ROWS, x, y, kind)
    assert all(each in str(raised.value) for each in said), str(raised.value)


def test_two_columns_of_one_name_and_too_many_bars_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
    with pytest.raises(BindError, match="several columns are called n"):
        chart_of(twice, "n", "n", "line")
    with pytest.raises(LimitError, match="at most 100 bars for each column, but the result has 101 rows"):
        chart_of(pa.table({"x": range(101), "y": range(101)}), "x", "y", "bar")


@pytest.mark.parametrize("colour", drawing._COLOURS)
def test_colours_are_told_from_light_and_from_dark_pages(colour: str) -> None:
    def luminance(text: str) -> float:
        parts = [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for page in ("#ffffff", "#111111"):
        low, high = sorted((luminance(colour), luminance(page)))
        assert (high + 0.05) / (low + 0.05) >= 3, page
