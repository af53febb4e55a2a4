"""HTML for notebooks: escaped texts and tables, in colours that can be read on light and on dark pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

#: How many rows a notebook shows of a result.
MOST_ROWS = 50
_LONGEST_CELL = 500
_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

# Notebooks do not say whether their page is light or dark. So texts and lines have the colour of the page's text, and
# what has another colour brings its background.  `div` and `table` make rules stronger than those of notebooks.
_STYLE = """
.watersmeet { font-size: 13px; line-height: 1.45; }
div.watersmeet table { border-collapse: collapse; margin: .3em 0; font-variant-numeric: tabular-nums; }
div.watersmeet table th, div.watersmeet table td { padding: .25em .7em; text-align: left; vertical-align: top; }
div.watersmeet table th, div.watersmeet table td { white-space: pre-wrap; }
div.watersmeet table th { border-bottom: 1px solid currentColor; font-weight: 600; }
div.watersmeet table td.number { text-align: right; }
.watersmeet td.null, .watersmeet .dim { opacity: .75; }
.watersmeet p { margin: .3em 0; }
.watersmeet pre { margin: .3em 0; white-space: pre-wrap; font: 12.5px/1.45 "DejaVu Sans Mono", monospace; }
.watersmeet .scroll { overflow-x: auto; }
.watersmeet .pill { padding: .1em .7em; border-radius: 1em; font-weight: 600; background: #e6eaec; color: #44525a; }
.watersmeet .pill.running { background: #e2f3e7; color: #1d6f3b; }
.watersmeet .pill.waiting { background: #fdf0d2; color: #7a5000; }
.watersmeet .pill.failed, .watersmeet pre.error { background: #fce5e4; color: #a8201f; }
.watersmeet pre.error { padding: .5em .8em; }
.watersmeet svg text { font: 12.5px system-ui, "DejaVu Sans", sans-serif; fill: currentColor; }
.watersmeet svg .name { font-weight: 650; }
.watersmeet svg .note { opacity: .75; }
.watersmeet svg rect { fill: currentColor; fill-opacity: .04; stroke: currentColor; stroke-opacity: .45; }
.watersmeet svg .operator rect { fill: #0b8f87; fill-opacity: .14; stroke: #0b8f87; stroke-opacity: 1; }
.watersmeet svg.bar rect { fill-opacity: .16; stroke: none; }
.watersmeet svg.bar rect.done { fill: #0b8f87; fill-opacity: 1; }
.watersmeet .charts { display: flex; flex-wrap: wrap; gap: .6em 1.5em; margin: .6em 0; }
.watersmeet svg path { fill: none; stroke: #0b8f87; stroke-width: 1.8; }
"""


def page_part(*parts: str) -> str:
    """Return what a notebook shows of one result: ``parts`` are HTML."""
    return f'<div class="watersmeet"><style>{_STYLE}</style>{"".join(parts)}</div>'


def escaped(text: object) -> str:
    """Return a text for HTML and SVG; characters that neither can hold are replaced."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", escape(str(text)))


def rows_text(rows: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if rows == 1 else f"{rows:,} rows"


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of a plain text."""
    return f"<p{_class(kind)}>{escaped(text)}</p>"


def bar(fraction: float, label: str) -> str:
    """Return a progress bar."""
    said = escaped(label)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bar" role="img" aria-label="{said}" width="100%" height="10" '
        f'style="max-width: 480px"><title>{said}</title><rect width="100%" height="10" rx="4"/>'
        f'<rect class="done" width="{100 * fraction:.1f}%" height="10" rx="4"/></svg>'
    )


def plain(text: str, kind: str = "") -> str:
    """Return a plain text whose lines and spaces stay as they are."""
    return f"<pre{_class(kind)}>{escaped(text)}</pre>"


def error_part(error: Exception) -> str:
    """Return what a notebook shows of an error: its text."""
    return page_part(plain(str(error), "error"))


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of at most ``MOST_ROWS`` rows, which says so if there are more."""
    shown: list[Sequence[object]] = []
    more = False
    for row in rows:
        if len(shown) == MOST_ROWS:
            more = True
            break
        shown.append(row)
    head = "".join(f"<th>{escaped(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
    if more:
        note = paragraph(f"the first {MOST_ROWS} rows; there are more", "dim")
    else:
        note = "" if shown else paragraph("(no rows)", "dim")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def _cell(value: object) -> str:
    if value is None:
        return '<td class="null">NULL</td>'
    text = str(value)
    if len(text) > _LONGEST_CELL:
        text = f"{text[:_LONGEST_CELL]}… ({len(text):,} characters)"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<td{_class('number' if is_number else '')}>{escaped(text)}</td>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
