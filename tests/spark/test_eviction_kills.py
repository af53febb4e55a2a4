"""Jobs that evict rows in every batch, killed in the midst of it: what they evict is what they would have evicted."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.spark.eviction_kills import campaign, job
from tests.spark.eviction_kills.job import QUERIES, ROWS, Outcome, write_input
from tests.support.killing import Moment, Victim
from tests.support.workers import workers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]


def undisturbed(spark: SparkSession, folder: Path, files: int, names: list[str]) -> dict[str, Outcome]:
    """What queries make of so many files and the one that closes all windows, if nothing happens."""
    write_inputs(folder, files)
    write_input(folder, files, closes_windows=True)
    return job.finish(watersmeet.connect(spark, workspace=folder / "workspace"), folder, names)


def write_inputs(folder: Path, files: int) -> None:
    for number in range(files):
        write_input(folder, number)


def check(found: dict[str, Outcome], expected: dict[str, Outcome], files: int) -> None:
    """The outcomes are those expected, and every row is accounted for."""
    for name, outcome in found.items():
        lost, more = expected[name].results - outcome.results, outcome.results - expected[name].results
        assert (dict(lost), dict(more)) == ({}, {}), name
        assert outcome.evicted == expected[name].evicted, name
        assert outcome.counts == expected[name].counts, name
        accounted_for(name, outcome, files)


def accounted_for(name: str, outcome: Outcome, files: int) -> None:
    """Rows in are used, filtered, late or quarantined; used ones are held, evicted, expired, or have become final."""
    counts = outcome.counts
    for side in "op":
        evicted = sum(count for what, count in counts["evicted"].items() if what.startswith(f"{side}."))
        expired, used, held = counts["expired"].get(side, 0), counts["used"][side], counts["held"][side]
        assert counts["rows_in"][side] == files * (ROWS + 1) + 2, name
        assert counts["quarantined"][side] == files + 1, name
        rest = counts["filtered"].get(side, 0) + counts["late"][side] + counts["quarantined"][side]
        assert counts["rows_in"][side] == used + rest, name
        if QUERIES[name][1] == "left":
            assert held + evicted <= used, name
        else:
            assert held + evicted + expired == used, name
        assert evicted > files * ROWS / 8, name
    assert sum(outcome.evicted.values()) == sum(counts["evicted"].values()), name


@pytest.mark.slow
def test_a_batch_whose_workers_die_and_that_is_stopped_evicts_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    names, files, folder = ["lru_left"], 2, tmp_path / "disturbed"
    session = watersmeet.connect(spark, workspace=folder / "workspace")
    write_inputs(folder, files)
    write_input(folder, files, closes_windows=True)
    (query,) = job.start(session, folder, names).values()
    Moment.MANIFEST_WRITTEN.wait(folder / "workspace", random.Random(1), lambda: not query.is_active)
    for pid in workers(spark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    Moment.STATE_COMMITTED.wait(folder / "workspace", random.Random(1), lambda: not query.is_active)
    query.stop()
    assert query.report().batches <= files
    check(job.finish(session, folder, names), undisturbed(spark, tmp_path / "undisturbed", files, names), files)


@pytest.mark.slow
@pytest.mark.parametrize("policies", [("oldest", "lru"), ("pressure", "per_key")])
def test_a_killed_job_evicts_the_same_rows(spark: SparkSession, tmp_path: Path, policies: tuple[str, str]) -> None:
    names = [name for name, (policy, _) in QUERIES.items() if policy in policies]
    files, folder, kills = 0, tmp_path / "killed", Counter[Victim]()
    while kills.total() < 4 or not kills[Victim.DRIVER] + kills[Victim.JVM]:  # a quick job is killed less often
        assert files < 60, kills
        for number in range(files, files + 12):
            write_input(folder, number)
        files += 12
        kills += campaign.run(folder, names, seed=files, say=partial(print, flush=True))
    # only now, so that the batch that reports the counters is never killed
    write_input(folder, files, closes_windows=True)
    found = job.finish(watersmeet.connect(spark, workspace=folder / "workspace"), folder, names)
    check(found, undisturbed(spark, tmp_path / "undisturbed", files, names), files)
