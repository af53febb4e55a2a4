"""Lines and bars as an SVG element, in colours that can be read on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from watersmeet.charts.scales import number_text, number_ticks, tick_texts
from watersmeet.html import escaped

#: So many series have a colour of their own.
MOST_SERIES = 6
WIDTH, PLOT_HEIGHT = 480, 180
_RIGHT, _TOP, _BOTTOM, _LINE, _CHARACTER = 14, 10, 40, 18, 7.2
_LONGEST, _SHORTEST = 26, 6
_MARKED_POINTS = 60
_COLOURS = ("#0b8f87", "#d1701f", "#7a68d8", "#c2478c", "#2f7fd1", "#7d8b1a")
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "1 4")
# Texts have the colour of the page's text; `svg.wm-chart` makes rules stronger than those of the page around it.
_STYLE = (
    "svg.wm-chart{max-width:100%;height:auto}"
    'svg.wm-chart text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:currentColor;stroke:none}'
    "svg.wm-chart text.note{opacity:.75}"
    "svg.wm-chart path.grid{stroke:currentColor;stroke-opacity:.16;stroke-width:1;fill:none}"
    "svg.wm-chart path.base{stroke:currentColor;stroke-opacity:.55;stroke-width:1;fill:none}"
    "svg.wm-chart path.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
    + "".join(
        f"svg.wm-chart .s{number}{{stroke:{colour};stroke-dasharray:{dashes or 'none'}}}"
        f"svg.wm-chart rect.s{number},svg.wm-chart circle.s{number}"
        f"{{fill:{colour};fill-opacity:1;stroke:none;stroke-opacity:1}}"
        for number, (colour, dashes) in enumerate(zip(_COLOURS, _DASHES, strict=True))
    )
)


@dataclass(frozen=True, slots=True)
class Points:
    """A line: x, y (None: a gap), and a text for each point that is marked."""

    name: str
    points: Sequence[tuple[float, float | None]]
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars, one for each category; None is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Plot:
    """The place of a chart's lines and bars, and where values are in it."""

    left: float
    top: float
    ticks: Sequence[float]
    low: float = 0.0
    high: float = 1.0
    width: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", WIDTH - _RIGHT - self.left)

    @property
    def bottom(self) -> float:
        return self.top + PLOT_HEIGHT

    def x(self, value: float) -> float:
        return self.left + self.width * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        first, last = self.ticks[0], self.ticks[-1]
        return self.bottom - PLOT_HEIGHT * (value - first) / (last - first)


def lines_picture(
    series: Sequence[Points], x_name: str, x_ticks: Sequence[tuple[float, str]], span: tuple[float, float], label: str
) -> str:
    """Return lines over an axis of numbers or times, with its ``x_ticks``, as an SVG element."""
    ticks = _value_ticks([y for each in series for _, y in each.points if y is not None], from_zero=False)
    plot = _plot([each.name for each in series], ticks, *span)
    drawn = [element for number, each in enumerate(series) for element in _line(number, each, plot)]
    return _svg([each.name for each in series], plot, [(plot.x(x), text) for x, text in x_ticks], drawn, x_name, label)


def bars_picture(series: Sequence[Bars], x_name: str, categories: Sequence[str], label: str) -> str:
    """Return bars beside each other, for each category those of all series, as an SVG element."""
    ticks = _value_ticks([value for each in series for value in each.values if value is not None], from_zero=True)
    plot = _plot([each.name for each in series], ticks, 0, max(len(categories), 1))
    slot = plot.width / max(len(categories), 1)
    across = slot * 0.8 / len(series)
    drawn = []
    for number, each in enumerate(series):
        for place, value in enumerate(each.values):
            if value is None:
                continue
            x, y, base = plot.x(place) + slot * 0.1 + across * number, plot.y(max(value, 0)), plot.y(min(value, 0))
            text = escaped(f"{categories[place]}: {each.name} {number_text(value)}")
            drawn.append(
                f'<rect class="s{number}" x="{x:.1f}" y="{y:.1f}" width="{max(across - 1, 1):.1f}" '
                f'height="{max(base - y, 0.5):.1f}"><title>{text}</title></rect>'
            )
    return _svg([each.name for each in series], plot, _fitting(categories, plot, slot), drawn, x_name, label)


def _value_ticks(values: Sequence[float], *, from_zero: bool) -> list[float]:
    """Ticks over all values, from zero where that does not hide how they differ."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if from_zero or 0 <= low <= high / 2:
        low = min(low, 0.0)
    if from_zero or low / 2 <= high <= 0:
        high = max(high, 0.0)
    if low == high:
        low, high = (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    return number_ticks(low, high)


def _plot(names: Sequence[str], ticks: Sequence[float], low: float, high: float) -> _Plot:
    widest = max(map(len, tick_texts(ticks)))
    return _Plot(_CHARACTER * widest + 14, _TOP + _LINE * len(list(_legend_lines(names))), ticks, low, high)


def _line(number: int, series: Points, plot: _Plot) -> Iterator[str]:
    runs = [list(run) for is_known, run in groupby(series.points, lambda point: point[1] is not None) if is_known]
    places = [[(plot.x(x), plot.y(y)) for x, y in run if y is not None] for run in runs]
    drawn = "".join(f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in run)}" for run in places if len(run) > 1)
    if drawn:
        yield f'<path class="line s{number}" d="{drawn}"/>'
    marks_all = len(series.points) <= _MARKED_POINTS
    texts = iter(series.texts)
    for run in places:
        for x, y in run:
            text = next(texts, "")
            if marks_all or len(run) == 1:
                title = f"<title>{escaped(text)}</title>" if text else ""
                yield f'<circle class="s{number}" cx="{x:.1f}" cy="{y:.1f}" r="2.4">{title}</circle>'


def _fitting(categories: Sequence[str], plot: _Plot, slot: float) -> list[tuple[float, str]]:
    """The labels, cut to the room that each has; where that is little, each second one, and so on."""
    room = int((slot - 6) / _CHARACTER)
    cut = [_cut(category, room if room >= _SHORTEST else _SHORTEST + 2) for category in categories]
    widest = max((len(each) for each in cut), default=1) * _CHARACTER + 6
    every = max(int(-(-widest // slot)), 1)
    return [(plot.x(place) + slot / 2, each) for place, each in enumerate(cut) if place % every == 0]


def _svg(
    names: Sequence[str],
    plot: _Plot,
    x_ticks: Sequence[tuple[float, str]],
    drawn: Sequence[str],
    x_name: str,
    label: str,
) -> str:
    height = plot.bottom + _BOTTOM
    grid = "".join(f"M{plot.left:.1f} {plot.y(tick):.1f}H{WIDTH - _RIGHT}" for tick in plot.ticks)
    base = plot.y(0) if plot.ticks[0] <= 0 <= plot.ticks[-1] else plot.bottom
    texts = [
        *(
            _text(plot.left - 7, plot.y(tick) + 4, text, "end")
            for tick, text in zip(plot.ticks, tick_texts(plot.ticks), strict=True)
        ),
        *(_text(_inside(x, text), plot.bottom + 18, text, "middle") for x, text in x_ticks),
        _text(plot.left + plot.width / 2, plot.bottom + 35, _cut(x_name, 50), "middle"),
    ]
    if not drawn:
        texts.append(_text(plot.left + plot.width / 2, plot.top + PLOT_HEIGHT / 2, "(no values)", "middle"))
    said = escaped(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="wm-chart" role="img" aria-label="{said}" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}"><style>{_STYLE}</style><title>{said}</title>'
        f'{"".join(_legend(names))}<path class="grid" d="{grid}"/>{"".join(drawn)}'
        f'<path class="base" d="M{plot.left:.1f} {base:.1f}H{WIDTH - _RIGHT}"/>{"".join(texts)}</svg>'
    )


def _inside(x: float, text: str) -> float:
    """The middle of a text, so that it does not leave the picture."""
    half = len(text) * _CHARACTER / 2
    return min(max(x, half), WIDTH - half)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="note" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escaped(text)}</text>'


def _legend(names: Sequence[str]) -> Iterator[str]:
    for line, entries in enumerate(_legend_lines(names)):
        y = _TOP + _LINE * line
        for number, x, name in entries:
            yield f'<rect class="s{number}" x="{x:.1f}" y="{y - 5}" width="11" height="11"/>'
            yield f'<text x="{x + 17:.1f}" y="{y + 5}">{escaped(name)}</text>'


def _legend_lines(names: Sequence[str]) -> Iterator[list[tuple[int, float, str]]]:
    """The names of the series in lines: number, x and text of each."""
    entries: list[tuple[int, float, str]] = []
    x = 2.0
    for number, name in enumerate(names):
        cut = _cut(name, _LONGEST)
        width = 17 + len(cut) * _CHARACTER + 14
        if entries and x + width > WIDTH:
            yield entries
            entries, x = [], 2.0
        entries.append((number, x, cut))
        x += width
    yield entries


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
