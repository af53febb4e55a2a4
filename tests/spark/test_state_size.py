"""State and memory stay flat while a stream goes on: nothing is kept beyond the window."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from watersmeet.testing.harness import StepInput, load_script
from watersmeet.testing.spark_rig import SparkRig

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# A window of ±10 s and 5 s in each batch: two or three batches back stay in reach.
SCRIPT = """
CREATE STREAM l (k INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (k INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT l.k, l.v, r.v AS rv FROM l LEFT JOIN r ON l.k = r.k WITHIN INTERVAL '10' SECONDS EMIT FINAL;
"""
ROWS = 500
SECONDS = 5
WARM_BATCHES = 10
BATCHES = 50
MAX_GROWTH_BYTES = 48 << 20


def batch(number: int) -> dict[str, StepInput]:
    """Rows of equal number, size and spread in each batch, with other keys and texts."""
    rows = [(7 * i + number, f"{number:06d}-{i:06d}-{'x' * 100}", SECONDS * number + i % SECONDS) for i in range(ROWS)]
    return {"l": StepInput(rows), "r": StepInput(rows)}


def worker_bytes() -> int:
    """Resident memory of all Python processes below this one: Spark's workers and the process that forks them."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            is_python = "python" in (entry / "comm").read_text()
        except OSError:
            continue  # it has ended meanwhile
        children.setdefault(int(stat[1]), []).append(int(entry.name))
        sizes[int(entry.name)] = int(stat[21]) * os.sysconf("SC_PAGE_SIZE") if is_python else 0
    below, found = [os.getpid()], 0
    while below:
        for child in children.get(below.pop(), ()):
            below.append(child)
            found += sizes[child]
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_state_and_memory_stay_flat(spark: SparkSession, tmp_path: Path) -> None:
    rig = SparkRig(spark, tmp_path / "rig", *load_script(SCRIPT))
    counts: list[tuple[int, int, int]] = []
    memory: list[int] = []
    try:
        for number in range(WARM_BATCHES + BATCHES):
            outcome = rig.step(batch(number))
            counts.append(tuple(outcome.count(what) for what in ("state_rows", "segments", "state_bytes")))  # type: ignore[arg-type]
            memory.append(worker_bytes())
    finally:
        rig.close()
    early, late = counts[WARM_BATCHES : WARM_BATCHES + 15], counts[-15:]
    for what, before, after in zip(
        ("rows", "segments", "bytes"), zip(*early, strict=True), zip(*late, strict=True), strict=True
    ):
        # merges make it go up and down a little, but not up
        assert max(after) <= max(before) * 1.05, (what, before, after)
        assert min(after) > 0
    assert max(memory[-15:]) - max(memory[WARM_BATCHES : WARM_BATCHES + 15]) < MAX_GROWTH_BYTES, memory
