"""YARN: a job on containers that get all packages as an archive, from a folder that they share and back to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import repository
from tests.cluster.packaged import packed_environment
from tests.cluster.yarn import yarn_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_a_job_on_yarn(tmp_path: Path) -> None:
    archive = packed_environment(tmp_path / "environment")
    work = tmp_path / "work"
    work.mkdir()
    with yarn_cluster(tmp_path, 2) as found:
        run = subprocess.run(
            [sys.executable, "-m", "tests.cluster.on_yarn", str(tmp_path), str(archive)],
            cwd=work,
            env={
                **os.environ,
                **found,
                "PYTHONPATH": str(repository()),
                "CLUSTER_MASTER": "yarn",
                "CLUSTER_FOLDER": str(tmp_path),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=3000,
            check=False,
        )
    same = "equal to the batch answer"
    assert run.stdout.splitlines() == [same, "killed: True", same, same], run.stdout + run.stderr[-4000:]
