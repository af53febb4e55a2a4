"""The example for Kubernetes, run: Spark asks an API server for executors, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import repository
from tests.support.object_store import object_store
from tests.support.spark_jars import s3_jars

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_example_on_kubernetes(tmp_path: Path) -> None:
    with object_store() as (_, variables):
        run = subprocess.run(
            [sys.executable, "-m", "tests.cluster.on_kubernetes", str(tmp_path)],
            cwd=repository(),
            env={
                **os.environ,
                **variables,
                "CLUSTER_STORE": variables["AWS_ENDPOINT_URL"],
                "CLUSTER_JARS": ":".join(s3_jars()),
            },
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    assert run.stdout.splitlines() == [
        "equal to the batch answer",
        "3 executors were started",
        "not allowed by the Role: []",
    ], run.stdout + run.stderr[-4000:]
