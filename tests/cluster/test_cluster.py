"""A cluster whose hosts share nothing but an object store, or one folder: every join is exact, also while hosts die."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import run_in_cluster
from tests.cluster.hosts import WORK_FOLDER, can_isolate
from tests.cluster.kinds import QUERIES
from tests.cluster.packaged import packed_environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(2000),
    pytest.mark.skipif(not can_isolate(), reason="this machine lets its user make no hosts"),
]


def test_hosts_that_share_a_folder(tmp_path: Path) -> None:
    run = run_in_cluster(tmp_path, "tests.cluster.kinds", "2", "1", "left", executors=2, with_store=False)
    assert run.stdout.splitlines() == ["left: equal to the batch answer, 1233 rows"], run.stderr[-4000:]


@pytest.mark.slow
def test_new_executors_are_warmed_up(tmp_path: Path) -> None:
    run = run_in_cluster(tmp_path, "tests.cluster.warm", executors=2, with_store=False)
    assert run.stdout.splitlines() == [
        "of a new session: 0 1",
        "of one that replaces another: 2",
        "the thread has ended",
    ], run.stdout + run.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [8, 64])
def test_every_kind_of_join(buckets: int, tmp_path: Path) -> None:
    run = run_in_cluster(tmp_path, "tests.cluster.kinds", str(buckets), "3")
    assert [line.split(",")[0] for line in run.stdout.splitlines()] == [
        f"{name}: equal to the batch answer" for name in QUERIES
    ], run.stdout + run.stderr[-4000:]


@pytest.mark.slow
def test_a_delta_table_that_executors_write(tmp_path: Path) -> None:
    run = run_in_cluster(tmp_path, "tests.cluster.delta", "4", "3", executors=2)
    answer = ["equal to the batch answer, 720 rows, more files than batches: True"]
    assert run.stdout.splitlines() == answer, run.stdout + run.stderr[-4000:]


@pytest.mark.slow
def test_what_only_the_driver_sees_is_refused(tmp_path: Path) -> None:
    run = run_in_cluster(tmp_path, "tests.cluster.refusals", executors=2)
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    assert run.stdout.count("is on the disk of the driver, and the executors on executor1, executor2 do not") == 5


@pytest.mark.slow
def test_executors_that_get_all_packages_as_an_archive(tmp_path: Path) -> None:
    archive = packed_environment(tmp_path / "environment")
    (tmp_path / "driver").mkdir()
    archive.rename(tmp_path / "driver" / archive.name)
    where = f"{WORK_FOLDER}/{archive.name}"
    run = run_in_cluster(tmp_path, "tests.cluster.job", where, executors=2, bare=True)
    assert run.stdout.splitlines()[:1] == ["equal to the batch answer"], run.stdout + run.stderr[-4000:]


@pytest.mark.slow
def test_executors_that_die_and_one_that_is_cut_off(tmp_path: Path) -> None:
    run = run_in_cluster(tmp_path, "tests.cluster.faults")
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]


@pytest.mark.slow
def test_a_workspace_in_the_store(tmp_path: Path) -> None:
    run = run_in_cluster(tmp_path, "tests.cluster.workspace", "both", executors=2)
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    assert run.stdout.splitlines() == [
        "paired: equal to the batch answer",
        "late: equal to the batch answer",
        "newest: equal to the batch answer",
        "baselines: ['000000000001.parquet']",
        "4 of 4 streams made at once",
    ]
