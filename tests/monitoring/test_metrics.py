"""Metrics: every one is documented, Prometheus can read them, and alerts ask for those that there are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.statuses import CHAIN, counters_of_chain, plan_of, status_after
from watersmeet.monitoring.metrics import METRICS, Kind
from watersmeet.monitoring.prometheus import exposition

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "examples" / "monitoring" / "alerts.yaml"


def scraped() -> bytes:
    status = status_after(plan_of(CHAIN), [(5, counters_of_chain(100))], now=10)
    other = status_after(plan_of(CHAIN), [], now=10, name='"\n\\')
    return exposition([status, other])


def full_name(metric: object) -> str:
    found = next(each for each in METRICS if each is metric)
    return found.prometheus_name + ("_total" if found.kind is Kind.COUNTER else "")


def test_prometheus_reads_what_a_scrape_gets() -> None:
    families = {each.name: each for each in text_string_to_metric_families(scraped().decode())}
    assert len(families) == len(METRICS)
    values = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
        if sample.labels["query"] == "q"
    }
    by_name: dict[str, list[float]] = {}
    for (name, _), value in values.items():
        by_name.setdefault(name, []).append(value)
    assert by_name["watersmeet_rows_in_total"] == [100, 100, 100]
    assert by_name["watersmeet_operator_frontier_lag_seconds"] == [5]
    assert by_name["watersmeet_batch_duration_seconds_total"] == [1.5]
    assert by_name["watersmeet_input_state_size_bytes"] == [700]
    assert by_name["watersmeet_rows_evicted_total"] == [4]
    # every input counts from 0 on
    assert sorted(by_name["watersmeet_rows_quarantined_total"]) == [0, 0, 1]
    assert sorted(by_name["watersmeet_rows_late_total"]) == [0, 0, 2]
    assert sorted(by_name["watersmeet_query_state"]) == [0, 0, 0, 0, 1]
    assert '"\n\\' in {sample.labels["query"] for sample in families["watersmeet_query_state"].samples}


def test_every_metric_is_documented_as_it_is() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(watersmeet_\w+)` \| (\w+) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert rows == [
        (full_name(each), each.kind.value, ", ".join(each.labels), each.help.removesuffix(".")) for each in METRICS
    ]


def test_alerts_ask_for_metrics_that_there_are() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    asked = {name for rule in group["rules"] for name in re.findall(r"watersmeet_\w+", rule["expr"])}
    assert asked
    assert asked <= {full_name(each) for each in METRICS}


@pytest.mark.slow
def test_promtool_has_nothing_to_say() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=scraped(), capture_output=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, b"")
    rules = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, timeout=60, check=False)
    assert rules.returncode == 0, rules.stderr
    assert b"7 rules found" in rules.stdout
