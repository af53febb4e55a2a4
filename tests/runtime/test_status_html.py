"""A running query in a notebook: its state, counters, operators, failures and rates."""

from __future__ import annotations

import re

import pytest

from tests.monitoring.statuses import CHAIN, STARTED, counters_of_chain, plan_of, status_after
from watersmeet.runtime.history import Failure
from watersmeet.runtime.status import QueryState
from watersmeet.runtime.status_html import status_html

PLAN = plan_of(CHAIN)
EVIL = "<img src=x>"


def test_it_shows_name_state_mode_target_and_counters() -> None:
    html = status_html(status_after(PLAN, [(5, counters_of_chain(1000))], now=10, name="joined"))
    assert "<b>joined</b>" in html
    assert '<span class="pill running">running</span>' in html
    assert "continuous, into results" in html
    names = re.findall(r"<th>(.*?)</th>", html)
    cells = re.findall(r"<td.*?>(.*?)</td>", html)
    assert dict(zip(names, cells, strict=True)) == {
        "batches": "1",
        "rows in": "3000",
        "rows out": "10",
        "late": "2",
        "quarantined": "1",
        "state rows": "8",
        "state bytes": "780",
        "lag": "5 s",
    }


def test_the_operators_have_counts() -> None:
    html = status_html(status_after(PLAN, [(5, counters_of_chain(1000))], now=10))
    titles = re.findall(r"<title>(.*?)</title>", html, re.DOTALL)
    assert any(title.startswith("join_1\n2,000 in, 500 out\n7 rows of state\n") for title in titles), titles
    assert "o\n1,000 rows in" in titles


def test_a_query_without_a_batch_has_no_lag_and_no_chart() -> None:
    html = status_html(status_after(PLAN, [], now=1))
    assert '<td class="null">NULL</td>' in html
    assert "rows in a second" not in html


@pytest.mark.parametrize("went_on", [True, False])
def test_the_last_failure_is_shown_escaped(went_on: bool) -> None:
    failures = (Failure(STARTED, "SinkOutageError", "earlier", True), Failure(STARTED, "LimitError", EVIL, went_on))
    html = status_html(status_after(PLAN, [], now=1, state=QueryState.FAILED, failures=failures, name=EVIL))
    assert EVIL not in html
    assert "earlier" not in html
    assert "LimitError: &lt;img src=x&gt;" in html
    assert ("the query went on" in html) is went_on
    assert '<span class="pill failed">' in html


def test_what_is_waited_for_is_said() -> None:
    html = status_html(status_after(PLAN, [], now=1, state=QueryState.WAITING, waiting=f"waiting for {EVIL}"))
    assert "<p>waiting for &lt;img src=x&gt;</p>" in html


def test_the_chart_has_a_point_for_each_five_seconds_of_the_last_hour_also_where_nothing_came() -> None:
    batches = [(0.0, counters_of_chain(100)), (100_000.0, counters_of_chain(200)), (100_020.0, counters_of_chain(300))]
    html = status_html(status_after(PLAN, batches, now=100_021))
    (points,) = re.findall(r'<title>rows in a second.*?</title><path d="M(.*?)"', html)
    # 300 rows in each of the two slots, and 720 slots in an hour
    heights = [float(point.split()[1]) for point in points.split("L")]
    assert len(heights) == 720
    assert heights[-5:] == [1.0, 59.0, 59.0, 59.0, 1.0]
    assert set(heights[:-5]) == {59.0}
    assert "over 3600 s; at most 60.0" in html
