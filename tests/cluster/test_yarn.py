"""YARN: a job from the object store and back to it, on containers that get all packages as an archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import repository
from tests.cluster.packaged import packed_environment
from tests.cluster.yarn import yarn_cluster
from tests.support.object_store import object_store
from tests.support.spark_jars import s3_jars

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_job_on_yarn(tmp_path: Path) -> None:
    archive = packed_environment(tmp_path / "environment")
    work = tmp_path / "work"
    work.mkdir()
    with yarn_cluster(tmp_path, 2) as found, object_store() as (_, variables):
        run = subprocess.run(
            [sys.executable, "-m", "tests.cluster.on_yarn", str(tmp_path), str(archive)],
            cwd=work,
            env={
                **os.environ,
                **found,
                **variables,
                "PYTHONPATH": str(repository()),
                "CLUSTER_MASTER": "yarn",
                "CLUSTER_STORE": variables["AWS_ENDPOINT_URL"],
                "CLUSTER_JARS": ":".join(s3_jars()),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=1700,
            check=False,
        )
    same = "equal to the batch answer"
    assert run.stdout.splitlines() == [same, "killed: True", same, same], run.stdout + run.stderr[-4000:]
