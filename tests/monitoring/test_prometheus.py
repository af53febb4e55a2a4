"""A run that a real Prometheus scrapes: every expression of the alerts and of the dashboard, and the other ways out."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.jobs import environment
from tests.support.otlp_receiver import Receiver, otlp_receiver
from tests.support.prometheus import Prometheus, free_port, prometheus
from watersmeet.monitoring.metrics import METRICS, Kind

pytestmark = pytest.mark.timeout(420)

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
PATIENCE_SECONDS = 180
JOB = """
CREATE STREAM o (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'files', path = '{0}/o');
CREATE STREAM p (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'files', path = '{0}/p');
CREATE STREAM counts WITH (connector = 'files', path = '{0}/counts', changelog = 'true');
INSERT INTO counts SELECT window_start, count(*) AS n FROM TUMBLE(
  (SELECT o.id, o.ts FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS), ts, INTERVAL '1' MINUTE)
GROUP BY window_start, window_end SETTINGS buckets = 2;
"""
#: Of these there is nothing to see while all is well.
QUIET = {"watersmeet_rows_evicted_total", "watersmeet_operator_hot_keys"}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]
    return found


def filled(expression: str) -> str:
    """An expression of the dashboard, with its variables as Grafana fills them in."""
    return expression.replace("$query", ".*").replace("$__rate_interval", "1m")


def expressions() -> dict[str, str]:
    """Every expression of the dashboard, by panel and query."""
    return {
        f"{panel['title']} {target['refId']}": filled(target["expr"])
        for panel in panels()
        for target in panel["targets"]
    }


def rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"]
    found: list[dict[str, str]] = group["rules"]
    return found


def exposed() -> set[str]:
    return {each.prometheus_name + ("_total" if each.kind is Kind.COUNTER else "") for each in METRICS}


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    assert (dashboard["schemaVersion"], dashboard["uid"], dashboard.get("id")) == (39, "watersmeet", None)
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["query"]["datasource"] == source
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] in ("timeseries", "stat")
        assert all(each["datasource"] == source for each in (panel, *panel["targets"]))
        labels = {label for each in panel["targets"] for label in re.findall(r"{{(\w+)}}", each["legendFormat"])}
        assert labels <= {"query", "operator", "input", "state", "reason"}
    asked = {name for text in expressions().values() for name in re.findall(r"watersmeet_\w+", text)}
    assert asked <= exposed()


def rows(number: int) -> tuple[list[str], list[str]]:
    """New rows of both streams, ten seconds further; one of ``o`` is late from the third file on, one is none."""

    def row(id: int, second: float) -> str:
        minute, second = divmod(second, 60)
        return json.dumps({"id": id, "ts": f"2026-01-01T10:{int(minute):02}:{second:06.3f}Z"})

    left = [row(id, 10 * number + id) for id in range(9)]
    return [*left, row(1, 0), '{"id": "none"}'], [row(id, 10 * number + id) for id in range(9)]


def feed(folder: Path, number: int) -> None:
    for name, lines in zip("op", rows(number), strict=True):
        written = folder / f".{name}{number}"
        written.write_text("".join(f"{line}\n" for line in lines))
        written.rename(folder / name / f"{number:04}.json")


@contextmanager
def running(folder: Path, receiver: Receiver) -> Iterator[str]:
    """``watersmeet run``, from which metrics go both ways; its address for Prometheus."""
    for name in "op":
        (folder / name).mkdir()
    (folder / "job.sql").write_text(JOB.format(folder))
    address = f"127.0.0.1:{free_port()}"
    words = ["run", "job.sql", "--master", "local[2]", "--ui-address", address, "--otel", "--log-format", "json"]
    command = [sys.executable, "-c", "from watersmeet.cli.main import main; main()", *words]
    others = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    with (folder / "err.jsonl").open("w") as err:
        process = subprocess.Popen(
            command, cwd=folder, stdout=err, stderr=err, env={**environment(), **others}, start_new_session=True
        )
        try:
            yield address
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(60) == 128 + signal.SIGINT
        finally:
            process.kill()
            process.wait(30)


def wait_for(folder: Path, fed: Iterator[int], condition: Callable[[], object]) -> None:
    """Feed a file every second until a condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, (folder / "err.jsonl").read_text()
        feed(folder, next(fed))
        time.sleep(1)


def check(server: Prometheus) -> None:
    """Every expression is understood, and all of those about what there is have values."""
    for name in exposed() - QUIET:
        assert server.ask(name), name
    for where, text in expressions().items():
        found = server.ask(text)
        assert found or QUIET & set(re.findall(r"watersmeet_\w+", text)), where
    # what the alerts compare, without the comparison
    alerts = {rule["alert"]: rule["expr"] for rule in rules()}
    for text in alerts.values():
        server.ask(text)
    assert {each["metric"]["input"] for each in server.ask(alerts["WatersmeetRowsLost"])} == {"o"}
    for name in ("WatersmeetNoBatch", "WatersmeetFrontierStands", "WatersmeetRunsFail"):
        compared = re.sub(r"(> 600|== 0|> 3)", ">= 0", alerts[name], count=1)
        assert server.ask(compared) or name == "WatersmeetFrontierStands", name
    (frontier,) = server.ask('delta(watersmeet_operator_frontier_seconds{operator=~".*join_1"}[15m])')
    assert float(frontier["value"][1]) > 0
    (group,) = server.get("/api/v1/rules")["groups"]
    assert [(rule["name"], rule["health"]) for rule in group["rules"]] == [(name, "ok") for name in alerts]
    assert {rule["name"] for rule in group["rules"] if rule["state"] != "inactive"} == {"WatersmeetRowsLost"}


@pytest.mark.slow
@pytest.mark.processes
def test_prometheus_has_an_answer_to_every_expression(tmp_path: Path) -> None:
    fed = iter(range(300))
    with otlp_receiver() as receiver:
        with (
            running(tmp_path, receiver) as address,
            prometheus(tmp_path, address, EXAMPLES / "alerts.yaml") as server,
        ):
            lost = 'rate(watersmeet_rows_late_total{input="o"}[1m]) > 0'
            aggregate = 'increase(watersmeet_operator_results_total{operator="aggregate"}[1m]) > 0'
            wait_for(tmp_path, fed, lambda: server.ask(lost) and server.ask(aggregate))
            evaluated = 'ALERTS{alertname="WatersmeetRowsLost"}'
            wait_for(tmp_path, fed, lambda: server.ask(evaluated))
            check(server)
            from_streams = server.ask("sum by (input) (watersmeet_rows_in_total)")
            assert {each["metric"]["input"] for each in from_streams} == {"o", "p"}
        sent = receiver.values()
    events = [json.loads(line) for line in (tmp_path / "err.jsonl").read_text().splitlines()]
    batches = [each for each in events if each["event"] == "batch"]
    (ended,) = [each for each in events if each["event"] == "ended"]
    assert (ended["state"], ended["totals"]) == ("stopped", batches[-1]["totals"])
    assert [each["batch"] for each in batches] == list(range(len(batches)))
    assert sum(each["quarantined"] for each in batches) == ended["totals"]["quarantined"] > 0
    assert {each["event"] for each in events} == {"message", "started", "batch", "ended"}
    # the last export came after the last batch
    in_all = sum(value for (name, _), value in sent.items() if name == "watersmeet.rows.in")
    assert in_all == ended["totals"]["rows_in"]
