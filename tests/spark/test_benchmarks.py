"""The benchmarks' results are right, with the settings under which they are timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import suite
from benchmarks.latency import suite as latency
from benchmarks.workloads import WORKLOADS

pytestmark = pytest.mark.spark


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.kafka if each.records else ()) for name, each in WORKLOADS.items()],
)
def test_results_are_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workload = WORKLOADS[name].of_rows(min(WORKLOADS[name].data.rows, 100_000))
    result = suite.run(workload, peers=False)  # raises where they differ
    assert result["engines"]["watersmeet"]["rows_out"] > 0
    if name == "inner":
        assert 0 <= result["engines"]["watersmeet"]["hit_rate"] <= 1


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_latency_over_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plan = latency.Plan(queries=["left"], rates=[20], engines=["micro_batch"], seconds=4, warm_up=2)
    (found,) = latency.run(plan)
    assert found.get("problem") is None, found
    assert found["expected"] == found["received"] > 0
    assert {name: each["p50"] > 0 for name, each in found["latency_ms"].items()} == {"joined": True, "padded": True}
    assert not list(tmp_path.iterdir())  # topics, logs and the engine's files


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_soak_checks_its_counts() -> None:
    command = [sys.executable, "-m", "benchmarks.bench_soak", "--minutes", "1", "--limit", "2000000"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert len(figures["seconds"]) == len(figures["samples"]) > 1
    assert done.stdout.count("as expected") == 4
