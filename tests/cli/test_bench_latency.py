"""``watersmeet bench latency``: its arithmetic, tables, statements and errors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.latency import engines, flink, suite
from benchmarks.latency.expected import NONE, Measured, Outcome, Results, Sent, judged, pairs_in_window, versions_as_of
from benchmarks.latency.load import figures
from benchmarks.latency.processes import started
from benchmarks.latency.queries import PARTITIONS, QUERIES, Query
from benchmarks.memory import Usage
from watersmeet.cli.main import app

MS = 1_000_000
ALL = Measured(0, 1_000_000 * MS)
NO_ENGINE = (
    "none of these engines runs any of these queries\n"
    "hint: Spark's own engines run inner alone, and flink needs --flink\n"
)


def sent(*records: tuple[int, int]) -> Sent:
    """Records, each with its key and the milliseconds at which it was sent; event times are the same."""
    keys, at_ms = np.array(records, np.int64).reshape(-1, 2).T
    return Sent(keys, at_ms * MS, at_ms)


def came(*rows: tuple[int, ...], columns: tuple[str, ...] = ("l_id", "r_id")) -> Results:
    """Results: the milliseconds at which each came, and its columns."""
    found = dict(zip(("at", *columns), np.array(rows, np.int64).reshape(-1, 1 + len(columns)).T, strict=True))
    missing = np.full(len(rows), NONE)
    l_id, r_id, l_key, n = (found.get(name, missing) for name in ("l_id", "r_id", "l_key", "n"))
    return Results(found["at"] * MS, l_id, r_id, l_key, n)


def counts(outcome: Outcome) -> tuple[int, ...]:
    return outcome.expected, outcome.received, outcome.missing, outcome.unexpected, outcome.repeated


def latencies(outcome: Outcome) -> dict[str, list[float]]:
    return {name: sorted(found.tolist()) for name, found in outcome.latencies.items()}


def test_both_ends_of_a_window_belong_to_it() -> None:
    left = sent((7, 10_000), (8, 10_000))
    right = sent((7, 4_999), (7, 5_000), (7, 15_000), (7, 15_001), (8, 9_000), (9, 10_000))
    l_id, r_id = pairs_in_window(left, right, 5_000)
    assert list(zip(l_id.tolist(), r_id.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 4)]


def test_pairs_and_versions_are_those_of_a_nested_loop() -> None:
    rng = np.random.default_rng(3)
    left, right = (
        sent(*zip(rng.integers(-3, 4, 300).tolist(), np.sort(rng.integers(0, 900, 300)).tolist(), strict=True))
        for _ in range(2)
    )
    pairs = [
        (i, j)
        for i in range(300)
        for j in range(300)
        if left.key[i] == right.key[j] and abs(left.event_ms[i] - right.event_ms[j]) <= 50
    ]
    assert list(zip(*(each.tolist() for each in pairs_in_window(left, right, 50)), strict=True)) == pairs
    older = [
        [j for j in range(300) if left.key[i] == right.key[j] and right.event_ms[j] <= left.event_ms[i]]
        for i in range(300)
    ]
    assert versions_as_of(left, right).tolist() == [max(each, default=NONE) for each in older]


def test_the_latency_of_a_pair_begins_with_its_later_record() -> None:
    sides = {"l": sent((1, 100), (2, 300)), "r": sent((1, 200), (2, 250))}
    outcome = judged(QUERIES["inner"], sides, came((207, 0, 0), (303, 1, 1)), ALL)
    assert counts(outcome) == (2, 2, 0, 0, 0)
    assert latencies(outcome) == {"joined": [3.0, 7.0]}


def test_only_the_measured_time_counts_but_all_results_are_checked() -> None:
    sides = {"l": sent((1, 100), (2, 300), (3, 500)), "r": sent((1, 100), (2, 300), (3, 500))}
    measured = Measured(200 * MS, 400 * MS)
    outcome = judged(QUERIES["inner"], sides, came((305, 1, 1)), measured)
    assert counts(outcome) == (1, 1, 1, 0, 0)  # that of the warm-up is missing; that of the end is not needed
    assert latencies(outcome) == {"joined": [5.0]}


def test_the_latency_of_a_row_that_is_passed_on() -> None:
    outcome = judged(
        QUERIES["passed"], {"l": sent((1, 100), (2, 300))}, came((105, 0), (302, 1), columns=("l_id",)), ALL
    )
    assert counts(outcome) == (2, 2, 0, 0, 0)
    assert latencies(outcome) == {"passed": [2.0, 5.0]}


def test_results_that_differ() -> None:
    sides = {"l": sent((1, 100), (2, 100)), "r": sent((1, 100), (2, 100))}
    outcome = judged(QUERIES["inner"], sides, came((110, 0, 0), (120, 0, 0), (130, 0, 1)), ALL)
    assert counts(outcome) == (2, 1, 1, 1, 1)
    assert not outcome.is_right
    found = figures(outcome)
    assert found["latency_ms"] == {}
    assert suite.problem(found) == "the results differ from those expected: 1 missing, 1 unexpected, 1 repeated"


def test_padded_rows_are_late_from_the_moment_their_window_closed() -> None:
    sides = {"l": sent((1, 100), (2, 200)), "r": sent((1, 150), (3, 150))}
    outcome = judged(QUERIES["left"], sides, came((151, 0, 0), (6_240, 1, NONE)), ALL)
    assert counts(outcome) == (2, 2, 0, 0, 0)
    assert latencies(outcome) == {"joined": [1.0], "padded": [40.0]}  # 200 + 5,000 of the window + 1,000 of the delay


def test_a_version_is_settled_when_all_partitions_have_gone_on() -> None:
    sides = {"l": sent((1, 100), (2, 120)), "r": sent((1, 90), (2, 110), (1, 130), (2, 170))}
    outcome = judged(QUERIES["temporal"], sides, came((175, 0, 0), (180, 1, 1)), ALL)
    assert counts(outcome) == (2, 2, 0, 0, 0)
    assert latencies(outcome) == {"joined": [60.0, 75.0], "settled": [10.0, 45.0]}
    wrong = judged(QUERIES["temporal"], sides, came((175, 0, 0), (180, 1, NONE)), ALL)
    assert counts(wrong) == (2, 1, 1, 1, 0)


CHANGING = ("l_key", "l_id", "r_id")


def test_an_update_is_shown_by_a_newer_one_of_its_key() -> None:
    sides = {"l": sent((1, 100), (1, 200), (1, 210), (5, 210)), "r": sent((1, 150), (2, 160))}
    results = came((155, 1, 0, 0), (230, 1, 2, 0), columns=CHANGING)
    outcome = judged(QUERIES["changing"], sides, results, ALL)
    assert counts(outcome) == (3, 3, 0, 0, 0)  # the first left row had no partner yet
    assert latencies(outcome) == {"joined": [5.0, 20.0, 30.0]}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(155, 1, 0, 0)], (2, 1, 1, 0, 0)),  # the update is missing
        ([(155, 1, 0, 0), (230, 1, 1, 0), (240, 1, 0, 0)], (2, 2, 0, 1, 1)),  # an older row came last
        ([(155, 1, 0, 0), (230, 1, 1, 0), (240, 1, NONE, NONE)], (2, 2, 1, 0, 0)),  # the key was deleted
        ([(155, 1, 0, 0), (230, 1, NONE, NONE), (240, 1, 1, 0)], (2, 2, 0, 0, 0)),
        ([(155, 1, 0, 0), (230, 1, 1, 0), (240, 2, 1, 0)], (2, 2, 0, 1, 1)),  # under another key
    ],
)
def test_results_that_replace_each_other(rows: list[tuple[int, ...]], expected: tuple[int, ...]) -> None:
    sides = {"l": sent((1, 100), (1, 200)), "r": sent((1, 150))}
    assert counts(judged(QUERIES["changing"], sides, came(*rows, columns=CHANGING), ALL)) == expected


def test_an_aggregate_counts_the_rows_up_to_its_newest() -> None:
    sides = {"l": sent((1, 100), (2, 110), (1, 120))}
    columns = ("l_key", "l_id", "n")
    outcome = judged(
        QUERIES["aggregate"], sides, came((103, 1, 0, 1), (112, 2, 1, 1), (124, 1, 2, 2), columns=columns), ALL
    )
    assert counts(outcome) == (3, 3, 0, 0, 0)
    assert latencies(outcome) == {"joined": [2.0, 3.0, 4.0]}
    wrong = judged(QUERIES["aggregate"], sides, came((112, 2, 1, 1), (124, 1, 2, 3), columns=columns), ALL)
    assert counts(wrong) == (3, 3, 0, 1, 0)


def test_figures_are_nearest_ranks() -> None:
    outcome = Outcome(200, 200, 0, 0, 0, {"joined": np.arange(200.0, 0, -1), "padded": np.array([])})
    assert figures(outcome)["latency_ms"] == {
        "joined": {"mean": 100.5, "p50": 100.0, "p95": 190.0, "p99": 198.0, "max": 200.0}
    }


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_partitions_take_turns_with_the_keys(query: Query) -> None:
    assert all(query.keys(rate) >= 10 and query.keys(rate) % PARTITIONS == 0 for rate in (10, 25, 10_000))


def test_statements_of_real_time() -> None:
    job = engines.Job("real_time", QUERIES["changing"], "127.0.0.1:1", "t", "a.jar", 30)
    left, _, sink, insert = engines.statements(job)
    assert "PRIMARY KEY (l_key)) WITH (connector = 'kafka', topic = 't-l'" in left
    assert sink.startswith("CREATE MUTABLE STREAM o (l_key BIGINT, l_id BIGINT, r_id BIGINT) PRIMARY KEY (l_key)")
    assert insert.endswith(" EMIT CHANGELOG SETTINGS mode = 'real_time', epoch = '30 seconds'")


def test_statements_of_flink() -> None:
    *tables, insert = flink.statements(QUERIES["aggregate"], "127.0.0.1:1", "t")
    assert "WATERMARK FOR l_time AS l_time - INTERVAL '1.000' SECOND" in tables[0]
    assert "PRIMARY KEY (l_key) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 't-o'" in tables[-1]
    assert insert == "INSERT INTO o SELECT l_key, MAX(l_id) AS l_id, COUNT(*) AS n FROM l GROUP BY l_key"


FOUND: dict[str, Any] = {
    "query": "left",
    "rate": 1_000,
    "engine": "micro_batch",
    "sent": 2_000,
    "expected": 900,
    "received": 900,
    "memory_mb": {"jvm": [900, 910, 905, 905], "workers": [1_200, 1_210, 1_215, 1_212]},
    "latency_ms": {
        "joined": {"mean": 1.25, "p50": 1.0, "p95": 2.0, "p99": 1_234.5, "max": 4_000.0},
        "padded": {"mean": 1.0, "p50": 1.0, "p95": 1.0, "p99": 1.0, "max": 1.0},
    },
}


def test_memory_is_that_of_each_quarter_of_the_measured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0
    monkeypatch.setattr(time, "monotonic", lambda: float(clock))
    monkeypatch.setattr(Usage, "of", lambda engine: Usage(clock * 1_000_000, 2_000_000, 1_000_000))
    found = suite.Memory(1)
    while clock < 100:  # a sample in five seconds
        found.look()
        clock += 1
    assert found.figures(40) == {"jvm": [65, 72, 82, 92], "workers": [2, 2, 2, 2]}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the measurements; nothing runs."""
    found = [FOUND]

    def run(plan: suite.Plan, progress: Any) -> Iterator[dict[str, Any]]:
        yield from found

    monkeypatch.setattr(suite, "run", run)
    return found


def test_a_table_of_figures(measured: list[dict[str, Any]], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "latency", "--query", "left", "--json", str(tmp_path / "all.json")])
    assert result.exit_code == 0, result.output
    head, _, joined, padded = result.stdout.splitlines()
    assert head.startswith("| query | rows/s a side | engine | sent | expected | received | results | mean | p50 |")
    assert joined == (
        "| left | 1,000 | micro_batch | 2,000 | 900 | 900 | joined | 1.2 | 1.0 | 2.0 | 1,234.5 | 4,000.0 "
        "| 900 910 905 905 | 1,200 1,210 1,215 1,212 |"
    )
    assert padded.split(" | ")[6] == "padded"
    assert json.loads((tmp_path / "all.json").read_text()) == [FOUND]


def test_a_measurement_without_figures(measured: list[dict[str, Any]]) -> None:
    measured.append({"query": "left", "rate": 10, "engine": "flink", "problem": "flink failed"})
    result = CliRunner().invoke(app, ["bench", "latency"])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "| left | 10 | flink |  |  |  | no figures |  |  |  |  |  |  |  |"
    assert result.stderr == "1 of 2 measurements have no figures\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["latency", "inner"], "latency is measured by itself\nhint: name the other workloads in another command\n"),
        (["latency", "--rows", "9"], "latency has no option --rows\nhint: choose with --query, --rate and --engine\n"),
        (["latency", "--query", "inne"], "latency has no query inne\nhint: did you mean inner?\n"),
        (["latency", "--engine", "flunk"], "latency has no engine flunk\nhint: did you mean flink?\n"),
        (
            ["latency", "--engine", "spark_real_time", "--engine", "flink", "--query", "left"],
            NO_ENGINE,
        ),
        (
            ["latency", "--json", "nowhere/all.json"],
            "--json: nowhere/all.json cannot be written\nhint: name a file in an existing folder\n",
        ),
        (
            ["latency", "--flink", "/bin/false"],
            "--flink: /bin/false is not a Python interpreter with apache-flink\n",
        ),
        (["inner", "--warm-up", "0"], "--warm-up is an option of latency alone\nhint: watersmeet bench latency\n"),
        (["latenc"], "there is no workload latenc\nhint: did you mean latency?\n"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, measured: list[dict[str, Any]]) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)


def test_spark_has_the_windowed_join_alone() -> None:
    planned = suite.Plan(rates=(10,)).measurements
    assert [engine for query, _, engine in planned if query.name == "inner"] == list(suite.ENGINES[:4])
    assert [engine for query, _, engine in planned if query.name == "left"] == ["real_time", "micro_batch"]


def test_a_process_ends_with_its_input() -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read(); print('ends')"
    with started("engine", [sys.executable, "-c", code]) as process:
        assert process.exit_code is None
    assert process.exit_code == 0
