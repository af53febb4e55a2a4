"""A running query in a notebook: its state, counters, operators, failures and rates."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.monitoring.statuses import CHAIN, HALF, STARTED, counters_of_chain, plan_of, status_after
from watersmeet.runtime.history import Failure
from watersmeet.runtime.history_rows import HistoryRows
from watersmeet.runtime.run_progress import InputProgress
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
    assert "wm-chart" not in html


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


def test_there_are_charts_of_rates_and_batches() -> None:
    batches = [(5.0 * step, counters_of_chain(100 * step)) for step in range(1, 4)]
    html = status_html(status_after(PLAN, batches, now=20))
    labels = re.findall(r'aria-label="((?:rows|longest).*?)"', html)
    rates, times = labels
    assert rates.endswith(": 3 points; rows_in_per_second from 60 to 60; rows_out_per_second from 2 to 2")
    assert times.endswith(": 3 points; longest_seconds from 1.5 to 1.5; mean_seconds from 1.5 to 1.5")


def test_the_last_hour_is_rows_with_rates_since_the_row_before() -> None:
    batches = [(30.0, counters_of_chain(100)), (32.0, counters_of_chain(200)), (60.0, counters_of_chain(300))]
    rows = HistoryRows(status_after(PLAN, batches, now=61).history).to_arrow().to_pylist()
    assert [row["batches"] for row in rows] == [2, 1]
    assert [row["rows_in_per_second"] for row in rows] == [600 / 30, 300 / 30]
    assert [row["rows_out_per_second"] for row in rows] == [20 / 30, 10 / 30]
    assert rows[0]["time"].timestamp() == STARTED + 30
    assert (rows[1]["mean_seconds"], rows[1]["state_rows"], rows[1]["state_bytes"]) == (1.5, 8, 780)
    html = HistoryRows(status_after(PLAN, batches, now=61).history)._repr_html_()
    assert html.count("wm-chart") > 2
    nothing = HistoryRows(status_after(PLAN, [], now=1).history)
    assert nothing.to_arrow().num_rows == 0
    assert "fewer than two batches" in nothing._repr_html_()


@pytest.mark.parametrize(("unknown", "has_bar"), [((), True), ((InputProgress(EVIL),), False)])
def test_a_bounded_run_has_a_bar_where_it_is_known_how_much_is_done(
    unknown: tuple[InputProgress, ...], has_bar: bool
) -> None:
    progress = replace(HALF, inputs=(*HALF.inputs, *unknown))
    html = status_html(status_after(PLAN, [], now=1, progress=progress))
    assert EVIL not in html
    assert ('<rect class="done" width="52.5%"' in html) is has_bar
    assert ("52% done, about 2 min 5 s left: o 2 GB of 2.5 GB" in html) is has_bar
    assert 'class="bar"' not in status_html(status_after(PLAN, [], now=1))
