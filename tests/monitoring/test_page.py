"""The live page in a real browser: all queries, both layouts, what fails, and what an attacker might name a column."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.monitoring.statuses import CHAIN, HALF, OVER_A_JOIN, STARTED, counters_of_chain, plan_of, status_after
from tests.support.chromium import Browser, chromium
from watersmeet.monitoring.access import Address
from watersmeet.monitoring.server import LivePage
from watersmeet.runtime.history import Failure
from watersmeet.runtime.run_progress import InputProgress
from watersmeet.runtime.status import QueryState, QueryStatus

pytestmark = pytest.mark.slow
#: Where pictures go, to be looked at; none are taken without it.
PICTURES = os.environ.get("WATERSMEET_PICTURES")
EVIL = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which setup installs where it can; without one these tests fail, and say so."""
    with chromium() as found:
        yield found


def running() -> QueryStatus:
    batches = [(float(second), counters_of_chain(second * 100)) for second in range(5, 1800, 5)]
    return status_after(plan_of(CHAIN), batches, now=1800, name="joined")


def show(browser: Browser, statuses: Sequence[QueryStatus], width: int = 1280, *, dark: bool = False) -> list[str]:
    """Open a page with these queries; return what the browser complains of."""
    with LivePage(lambda: statuses, Address(port=0)) as page:
        browser.open("about:blank")
        browser.wait_for("location.href === 'about:blank'")
        browser.problems.clear()
        browser.open(page.url, width=width, dark=dark)
        browser.wait_for(f"document.querySelectorAll('section.query').length === {len(statuses)}")
        browser.wait_for("document.querySelector('.query figure')")
        if PICTURES:
            names = "-".join(status.name for status in statuses if status.name.isalnum())
            browser.picture(Path(PICTURES) / f"{names}-{width}-{'dark' if dark else 'light'}.png")
        browser.value("1")  # what it had to say before is read with the answer
        return list(browser.problems)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 375])
def test_everything_about_a_query_is_on_the_page_and_fits(browser: Browser, width: int, dark: bool) -> None:
    over = status_after(plan_of(OVER_A_JOIN), [(5, {"subquery_join_1.in.o": 50})], now=10, name="windows")
    problems = show(browser, [running(), over], width, dark=dark)
    text = browser.value("document.querySelector('section.query').innerText")
    for said in ("joined", "running", "join_1", "join_2", "into results", "lag 5 s", "700 B", "4 by lru", "Hot keys"):
        assert said in text, said
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    places = "[...document.querySelectorAll('.tile, .card:not(.scroll), .top, h2')]"
    assert browser.value(f"{places}.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)") == []
    assert browser.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(17, 23, 26)" if dark else "rgb(244, 246, 247)"
    )
    assert problems == []


def test_what_is_drawn_is_also_said(browser: Browser) -> None:
    show(browser, [running()])
    labels = browser.value("[...document.querySelectorAll('svg[role=img]')].map(e => e.getAttribute('aria-label'))")
    assert [label.partition(",")[0] for label in labels] == [
        "Batch time",
        "Rows a second",
        "State",
        "Lag of the frontier",
    ]
    assert "longest 1.5 s, at most 1.5 s" in labels[0]
    said = browser.value("document.querySelector('ul.hidden').textContent")
    assert all(name in said for name in ("into results", "join_2", "join_1", "o: ", "p: ", "s: "))
    assert browser.value("document.querySelectorAll('polyline.series').length") >= 4


def test_the_state_of_a_query_is_plain_in_words(browser: Browser) -> None:
    failure = Failure(STARTED + 5, "ConnectorError", "PostgreSQL refuses the password ***", went_on=False)
    waits = "waiting for PostgreSQL at db:5432: connection refused (attempt 3, 8 s of 1 min)"
    plan = plan_of(CHAIN)
    statuses = [
        status_after(plan, [], now=9, name="waits", state=QueryState.WAITING, waiting=waits),
        status_after(plan, [], now=9, name="fails", state=QueryState.FAILED, failures=(failure,)),
        status_after(plan, [], now=9, name="ends", state=QueryState.ENDED),
    ]
    problems = show(browser, statuses, 375)
    texts = browser.value("[...document.querySelectorAll('section.query')].map(e => e.innerText)")
    assert "waiting" in texts[0]
    assert waits in texts[0]
    assert "failed" in texts[1]
    assert texts[1].count(failure.message) == 2  # above all, and under the last errors
    assert "the query ended" in texts[1]
    assert "ended" in texts[2]
    assert problems == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 375])
def test_a_bounded_run_has_a_bar_where_it_is_known_how_much_is_done(browser: Browser, width: int, dark: bool) -> None:
    batches = [(float(second), counters_of_chain(second * 100)) for second in range(5, 1800, 5)]
    plan = plan_of(CHAIN)
    unknown = replace(HALF, inputs=(*HALF.inputs, InputProgress("s")), remaining=None)
    statuses = [
        status_after(plan, batches, now=1800, name="bounded", progress=HALF),
        status_after(plan, batches, now=1800, name="unknown", progress=unknown),
        status_after(plan, batches, now=1800, name="continuous"),
    ]
    problems = show(browser, statuses, width, dark=dark)
    bars = browser.value("[...document.querySelectorAll('section.query')].map(e => e.querySelector('progress')?.value)")
    assert bars == [0.525, None, None]
    texts = browser.value("[...document.querySelectorAll('section.query')].map(e => e.innerText)")
    assert "52% done, about 2 min 5 s left: o 2 GB of 2.5 GB, p 2,100 of 4,000 records" in texts[0]
    assert "how much is done is not known: o 2 GB of 2.5 GB, p 2,100 of 4,000 records, s not known" in texts[1]
    assert "done" not in texts[2].partition("Operators")[0]
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []


def test_one_row_is_no_rows(browser: Browser) -> None:
    one = {"join_1.in.o": 1, "join_1.used.o": 1, "join_1.results": 1, "join_1.state_rows": 1, "join_1.held.o": 1}
    show(browser, [status_after(plan_of(CHAIN), [(5, one)], now=10)])
    text = browser.value("[...document.querySelectorAll('svg, .tiles, .figures')].map(e => e.textContent).join(' ')")
    assert "1 row of state" in text
    assert re.search(r"\b1 rows", text) is None


def test_names_and_messages_are_text_and_never_markup(browser: Browser) -> None:
    evil = replace(running(), name=EVIL, checkpoint=EVIL, targets=(EVIL,), write_plan=lambda: EVIL)
    failure = Failure(STARTED, "WatersmeetError", EVIL, went_on=True)
    evil = replace(evil, history=evil.history.failed(failure), tree=replace(evil.tree, text=EVIL))
    problems = show(browser, [evil])
    assert browser.value("document.images.length") == 0
    assert browser.value("document.title") == "1 running – Watersmeet"
    assert browser.value("document.querySelector('h2').textContent") == EVIL
    assert browser.value("document.querySelector('details pre').textContent") == EVIL
    assert problems == []


def test_the_page_says_when_the_run_is_gone_and_keeps_its_figures(browser: Browser) -> None:
    show(browser, [running()])
    browser.wait_for("document.querySelector('.link.lost')")
    assert "as of" in browser.value("document.getElementById('link').textContent")
    assert "join_1" in browser.value("document.body.innerText")


def test_what_was_opened_stays_open_at_the_next_update(browser: Browser) -> None:
    asked: list[int] = []

    def statuses() -> list[QueryStatus]:
        asked.append(1)
        return [replace(running(), time=STARTED + 1800 + len(asked))]

    with LivePage(statuses, Address(port=0)) as page:
        browser.open(page.url)
        browser.wait_for("document.querySelector('details')")
        browser.value("document.querySelector('details').open = true")
        seen = len(asked)
        before = browser.value("document.getElementById('link').textContent")
        browser.wait_for(f"document.getElementById('link').textContent !== {before!r}")
        assert len(asked) > seen
        assert browser.value("document.querySelector('details').open")
