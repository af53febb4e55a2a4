"""The model of a running query: rates, the last hour, and the tree, also as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from tests.monitoring.statuses import CHAIN, HALF, OVER_A_JOIN, STARTED, counters_of_chain, plan_of, status_after
from watersmeet.monitoring.metrics import METRICS
from watersmeet.monitoring.prometheus import exposition
from watersmeet.monitoring.status_json import statuses_json
from watersmeet.runtime.history import SLOTS, Batch, Failure, History
from watersmeet.runtime.report import Report
from watersmeet.runtime.run_progress import InputProgress, RunProgress, Tasks
from watersmeet.runtime.status import PlanWords, QueryStatus


def reported(history: History) -> Report:
    return Report()


def batch(after: float, milliseconds: int = 100) -> Batch:
    return Batch(number=0, ended=STARTED + after, counters={}, rows_out=3, milliseconds=milliseconds)


def test_batches_of_five_seconds_share_a_slot() -> None:
    history = History(started=STARTED, counters={})
    for each in (batch(1, 100), batch(4.9, 300), batch(5.1, 200)):
        history = history.after(each, reported)
    first, second = history.slots
    assert (first.batches, first.longest, round(first.seconds, 3), first.rows_out) == (2, 0.3, 0.4, 6)
    assert (second.batches, second.began - first.began) == (1, 5)
    assert (history.batches, history.rows_out, history.busy_ms, history.last_batch_ms) == (3, 9, 600, 200)


def test_a_query_keeps_an_hour_and_no_more() -> None:
    history = History(started=STARTED, counters={})
    for number in range(SLOTS + 50):
        history = history.after(batch(number * 5.0), reported)
    assert len(history.slots) == SLOTS == 3600 // 5
    assert history.slots[0].began == STARTED + 50 * 5
    assert history.batches == SLOTS + 50
    for _ in range(30):
        history = history.failed(Failure(STARTED, "OutageError", "away", went_on=True))
    assert (len(history.failures), history.failed_runs) == (10, 30)


def test_a_clock_that_is_set_back_does_not_disorder_the_slots() -> None:
    history = History(started=STARTED, counters={}).after(batch(100), reported).after(batch(10), reported)
    assert [slot.batches for slot in history.slots] == [2]


def test_rates_are_those_of_the_last_half_minute_and_fall_to_zero() -> None:
    plan = plan_of(CHAIN)
    batches = [(float(second), counters_of_chain(second * 10)) for second in (10, 40, 50)]
    second, first = status_after(plan, batches, now=50).operators
    assert (first.name, first.rows_in, second.name, second.rows_in) == ("join_1", 1000, "join_2", 500 + 250)
    assert first.rows_in_rate == (1000 - 200) / 40  # since the batch 40 s ago
    assert second.rows_in_rate == (750 - 150) / 40  # the rows of s, and the results of join_1
    assert second.results_rate == (250 - 50) / 40
    history = status_after(plan, batches, now=50).history
    # rows of o, p and s since the batch 40 s ago
    assert history.rows_in_rate(STARTED + 50) == (1500 - 300) / 40
    assert history.rows_in_rate(STARTED + 600) == 0
    assert [each.rows_in_rate for each in status_after(plan, batches, now=600).operators] == [0, 0]


def test_rows_of_results_that_are_packed_again_are_counted_once() -> None:
    counters = {
        "subquery_join_1.in.o": 50,
        "subquery_join_1.in.p": 50,
        "subquery_join_1.results": 40,
        "aggregate.in.subquery": 40,
        "aggregate.results": 2,
    }
    status = status_after(plan_of(OVER_A_JOIN), [(5, counters)], now=10)
    aggregate, join = status.operators
    assert (aggregate.rows_in, join.rows_in) == (40, 100)
    assert status.history.slots[0].rows_in == 100
    (rows_in,) = [metric for metric in METRICS if metric.name == "watersmeet.rows.in"]
    assert sum(value for _, value in rows_in.samples(status)) == 100
    shown = statuses_json([status], status.time)["queries"][0]
    assert shown["rows_in"] == 100
    assert shown["tree"]["below"][0]["name"] == "subquery_join_1"
    assert aggregate.description.startswith("GROUP BY")


def test_explain_is_written_once_a_batch_and_only_for_who_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Mapping[str, int]] = []

    def write(_: object, counters: Mapping[str, int]) -> str:
        written.append(counters)
        return f"{len(counters)} counters"

    plan = plan_of(CHAIN)
    monkeypatch.setattr("watersmeet.runtime.status.explain", write)
    words = PlanWords(plan, ("results",))
    first = {"join_1.in.o": 1}
    status = status_after(plan, [], now=1)
    for counters in (first, first, {"join_1.in.o": 2, "join_1.used.o": 2}):
        status = replace(status, write_plan=partial(words.explain, counters))
        exposition([status])
        statuses_json([status], 1)
        statuses_json([status], 2)
    assert (len(written), status.explain) == (2, "2 counters")
    words = PlanWords(plan, ("results",))
    exposition([replace(status, write_plan=partial(words.explain, first))])
    assert len(written) == 2


def test_json_has_every_side_of_an_operator() -> None:
    status = status_after(plan_of(CHAIN), [(5, counters_of_chain(100))], now=10)
    found = json.loads(json.dumps(statuses_json([status], status.time)))
    (query,) = found["queries"]
    join = query["operators"]["join_1"]
    assert query["state"] == "running"
    assert join["lag"] == {"value": 5_000_000, "text": "5 s"}
    assert join["sides"]["o"]["state_rows"] == 7
    assert join["sides"]["o"]["evicted"] == {"lru": 4}
    assert (join["sides"]["o"]["late"], join["sides"]["o"]["quarantined"], join["hot_keys"]) == (2, 1, 1)
    assert join["sides"]["p"]["frontier"]["value"] - join["sides"]["o"]["frontier"]["value"] == 4_000_000
    assert query["history"]["mean_seconds"] == [1.5]
    assert query["history"]["lag"]["join_1"] == [5_000_000]
    assert "join_1: " in query["explain"]


def test_before_its_first_batch_nothing_is_made_up() -> None:
    status = status_after(plan_of(CHAIN), [], now=1)
    (query,) = statuses_json([replace(status)], status.time)["queries"]
    assert (query["last_batch"], query["history"]["began"], query["operators"]["join_1"]["lag"]) == (None, [], None)


def test_how_much_of_a_run_is_done_is_in_the_json_and_a_metric() -> None:
    def status(progress: RunProgress | None) -> QueryStatus:
        return status_after(plan_of(CHAIN), [], now=1, name="q", progress=progress)

    (query,) = statuses_json([status(HALF)], STARTED)["queries"]
    assert query["progress"] == {
        "fraction": 0.525,
        "remaining_seconds": 125.0,
        "text": "52% done, about 2 min 5 s left: o 2 GB of 2.5 GB, p 2,100 of 4,000 records",
        "tasks": None,
        "inputs": [
            {"stream": "o", "unit": "bytes", "ahead": 2_500_000_000, "done": 2_000_000_000},
            {"stream": "p", "unit": "records", "ahead": 4000, "done": 2100},
        ],
    }
    assert json.dumps(query["progress"])
    assert 'watersmeet_run_progress_ratio{query="q"} 0.525' in exposition([status(HALF)]).decode()
    unknown = RunProgress(inputs=(InputProgress("o"),))
    (query,) = statuses_json([status(unknown)], STARTED)["queries"]
    assert query["progress"]["fraction"] is None
    assert query["progress"]["inputs"] == [{"stream": "o", "unit": None, "ahead": None, "done": None}]
    one_batch = RunProgress(inputs=(), tasks=Tasks(1, 4))
    (query,) = statuses_json([status(one_batch)], STARTED)["queries"]
    assert query["progress"]["tasks"] == {"done": 1, "planned": 4}
    (query,) = statuses_json([status(None)], STARTED)["queries"]
    assert query["progress"] is None
    for nothing in (unknown, None):
        assert "watersmeet_run_progress_ratio{" not in exposition([status(nothing)]).decode()
