"""The pages for the API, made from its docstrings."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import watersmeet

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """A page: its anchors, links, and what it loads from elsewhere; of each member, whether it has a docstring."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.documented: dict[str, bool] = {}
        self._member = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "link", "img"):
            self.loads.append(given.get("src", given.get("href", "")))
        classes = given.get("class", "").split()
        if "id" in given and (tag == "section" or "classattr" in classes):
            self._member = given["id"]
            self.documented[self._member] = False
        elif "docstring" in classes and self._member:
            self.documented[self._member] = True


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    folder = tmp_path_factory.mktemp("api")
    subprocess.run([sys.executable, "scripts/api_pages.py", str(folder)], cwd=ROOT, timeout=120, check=True)
    return {str(path.relative_to(folder)): Page(path) for path in folder.rglob("*.html")}


def test_there_is_a_page_for_each_module_that_users_see(pages: dict[str, Page]) -> None:
    assert {
        "watersmeet.html",
        "watersmeet/errors.html",
        "watersmeet/session/results.html",
        "watersmeet/runtime/query.html",
    } <= set(pages)
    assert set(watersmeet.__all__) <= pages["watersmeet.html"].anchors
    assert {"Batch.to_arrow", "StateRows.rows", "Started.query"} <= pages["watersmeet/session/results.html"].anchors


def test_everything_that_is_shown_says_what_it_is(pages: dict[str, Page]) -> None:
    silent = [
        f"{name}: {member}"
        for name, page in pages.items()
        for member, has_docstring in page.documented.items()
        if not has_docstring and not member.endswith(".__init__")
    ]
    assert silent == []
    assert sum(len(page.documented) for page in pages.values()) > 60


def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(pages: dict[str, Page]) -> None:
    known = {page.path.resolve(): page for page in pages.values()}
    for page in pages.values():
        for link in page.links:
            if re.match(r"https?://pdoc\.dev", link):
                continue
            file, _, anchor = link.partition("#")
            target = (page.path.parent / file).resolve() if file else page.path.resolve()
            assert target in known, f"{page.path.name}: {link}"
            assert not anchor or anchor in known[target].anchors, f"{page.path.name}: {link}"
        assert not [load for load in page.loads if load.startswith(("http", "//"))]
