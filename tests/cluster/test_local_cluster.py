"""``local-cluster[…]``: executors as processes of this machine, to try a job as on a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.cluster.hosts import repository
from watersmeet.session.spark import settings_for

MASTER = "local-cluster[2,1,1024]"


def test_a_local_cluster_listens_on_loopback_and_has_a_bucket_for_each_core() -> None:
    settings = settings_for({"spark.master": MASTER})
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.shuffle.partitions"] == "2"
    assert "spark.driver.host" not in settings_for({"spark.master": "spark://host:7077"})


def test_options_of_executors_are_added_to_those_of_the_user() -> None:
    settings = settings_for({"spark.master": "yarn"})
    assert "avro" in settings["spark.executor.defaultJavaOptions"]
    assert "spark.executor.extraJavaOptions" not in settings


def test_a_task_on_a_cluster_waits_a_second_for_its_state_and_not_for_a_host() -> None:
    wanted = {"spark.locality.wait.process": "1s", "spark.locality.wait.node": "0s"}
    assert wanted.items() <= settings_for({"spark.master": "yarn"}).items()
    assert not wanted.keys() & settings_for({"spark.master": "local[2]"}).keys()
    assert settings_for({"spark.master": "yarn", "spark.locality.wait.node": "3s"})["spark.locality.wait.node"] == "3s"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_on_a_local_cluster(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run = subprocess.run(
        [sys.executable, "-m", "tests.cluster.job"],
        cwd=work,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(repository() / "src"), str(repository())]),
            "CLUSTER_MASTER": MASTER,
            "CLUSTER_FOLDER": str(tmp_path),
            "CLUSTER_SETTINGS": json.dumps({"spark.executor.cores": "1", "spark.sql.shuffle.partitions": "2"}),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.stdout.splitlines()[-1:] == ["equal to the batch answer"], run.stdout + run.stderr[-4000:]
    assert not (Path(pyspark.__file__).parent / "work").exists()
