"""The notebook of ``examples`` is executed as nbconvert does it, and its page is looked at in Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from tests.support.chromium import Browser, chromium
from tests.support.jobs import environment

pytestmark = [pytest.mark.slow, pytest.mark.processes]
ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook" / "streams.ipynb"
#: Where pictures go, to be looked at; none are taken without it.
PICTURES = os.environ.get("WATERSMEET_PICTURES")
_CELL_SECONDS = 180


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook with its outputs."""
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copy(NOTEBOOK, folder)
    notebook = nbformat.read(folder / NOTEBOOK.name, as_version=4)
    client = NotebookClient(
        notebook, timeout=_CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute(env={**environment(), "IPYTHONDIR": str(folder / "ipython")})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def outputs(notebook: Any, begins: str) -> list[Any]:
    (found,) = [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and begins in cell.source]
    return list(found)


def html(output: Any) -> str:
    return str(output.get("data", {}).get("text/html", ""))


def test_each_cell_shows_what_it_should(executed: Any) -> None:
    assert "event time" in html(outputs(executed, "DESCRIBE orders")[-1])
    assert html(outputs(executed, "EXPLAIN SELECT")[-1]).count("<rect") == 3
    (joined,) = outputs(executed, "--into joined")
    assert html(joined).count("<tr>") == 4
    assert '<td class="null">NULL</td>' in html(joined)
    assert "30.00" in outputs(executed, "groupby")[0]["data"]["text/plain"]
    (chart,) = outputs(executed, "joined.chart")
    assert html(chart).count('<rect class="s0"') == 1 + 3  # with that of the legend
    query, note = outputs(executed, "--seconds 6")
    assert '<span class="pill running">running</span>' in html(query)
    assert "in the background: paid" in html(note)
    assert html(outputs(executed, "--into stored")[-1]).count("<tr>") == 3
    assert "decimal128(10, 2)" in outputs(executed, "to_arrow")[0]["data"]["text/plain"]


def test_the_error_has_its_mark_and_no_trace(executed: Any) -> None:
    (error,) = outputs(executed, "custmer")
    text = "\n".join(error["traceback"])
    assert "1 | SELECT o.order_id, o.custmer" in text
    assert "^" in text
    assert "did you mean customer?" in text
    assert ".py" not in text


@pytest.mark.parametrize("dark", [False, True])
def test_its_page_can_be_read(executed: Any, browser: Browser, tmp_path: Path, dark: bool) -> None:
    exporter = HTMLExporter(theme="dark" if dark else "light", mathjax_url="", require_js_url="", mermaid_js_url="")
    page, _ = exporter.from_notebook_node(executed)
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.open(path.as_uri(), dark=dark)
    browser.wait_for("document.querySelectorAll('.watersmeet').length > 5")
    if PICTURES:
        browser.picture(Path(PICTURES) / f"notebook-{'dark' if dark else 'light'}.png")
    # what the browser computes of a box's text and of the page's colour
    assert browser.value("document.querySelectorAll('.watersmeet svg .name').length") >= 6
    text, back = browser.value(
        "[getComputedStyle(document.querySelector('.watersmeet svg .name')).fill,"
        " getComputedStyle(document.body).backgroundColor]"
    )
    assert (_brightness(text) > 128, _brightness(back) > 128) == (dark, not dark)
    charts = "document.querySelectorAll('.watersmeet svg.wm-chart')"
    assert browser.value(f"{charts}.length") >= 1
    fills = [browser.value(f"getComputedStyle({charts}[0].querySelector('{tag}')).fill") for tag in ("text", "rect")]
    assert (_brightness(fills[0]) > 128, fills[1]) == (dark, "rgb(11, 143, 135)")
    boxes = "[...document.querySelectorAll('.watersmeet svg svg')]"
    assert browser.value(f"{boxes}.every(box => box.querySelector('text').getBBox().width <= 206)")


def _brightness(colour: str) -> float:
    red, green, blue = (float(each) for each in colour.partition("(")[2].rstrip(")").split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue
