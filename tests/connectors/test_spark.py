"""The Spark session that ``connect`` finds or starts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import watersmeet
from watersmeet.errors import ConfigError
from watersmeet.session.spark import _default_master, _new_settings, _sockets, launch_jvm, settings_for

pytestmark = pytest.mark.spark

# Ivy settings that look into an empty folder only, so that no network is asked.
NOWHERE = """<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">
<artifact pattern="{0}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>"""

PACKAGES = """
import watersmeet
from watersmeet.errors import WatersmeetError

def told(**settings):
    try:
        watersmeet.connect(master="local[1]", **settings)
    except WatersmeetError as error:
        print(type(error).__name__, str(error), sep=": ")

told(packages=["org.nowhere:nothing_2.13:1.0"], config={"spark.jars.ivySettings": "ivy.xml", "spark.jars.ivy": "ivy"})
watersmeet.connect(master="local[1]").spark.stop()
told(packages=["protobuf"])
"""


def test_driver_addresses_are_local_where_the_master_is() -> None:
    local = settings_for({"spark.master": "local[3]"})
    assert local["spark.driver.host"] == local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.sql.shuffle.partitions"] == "3"
    remote = settings_for({"spark.master": "spark://host:7077", "spark.ui.enabled": "true"})
    assert not [name for name in remote if name.startswith("spark.driver")]
    assert "spark.sql.shuffle.partitions" not in remote
    assert not [name for name in remote if "unix" in name]  # executors have no folder of this process
    assert remote["spark.ui.enabled"] == "true"


def test_workers_use_sockets_in_a_folder_for_their_user_alone_if_its_path_allows_it() -> None:
    assert _sockets(Path("/tmp/one"))["spark.python.unix.domain.socket.dir"] == "/tmp/one"
    assert _sockets(Path("/tmp") / ("x" * 60)) == {}, "too long"
    assert _sockets(Path("/tmp/One")) == {}, "workers would look for it in /tmp/one"


def test_a_session_that_runs_already_is_used(spark: SparkSession, tmp_path: Path) -> None:
    found: list[SparkSession] = []
    # also in another thread, where Spark knows of no active session
    thread = threading.Thread(target=lambda: found.append(watersmeet.connect(workspace=tmp_path).spark))
    thread.start()
    thread.join()
    assert found[0].sparkContext is spark.sparkContext


@pytest.mark.parametrize(
    "settings", [{"packages": ["kafka"]}, {"master": "local[1]"}, {"config": {"spark.ui.enabled": "true"}}]
)
def test_settings_for_a_session_that_is_there_are_refused(
    spark: SparkSession, tmp_path: Path, settings: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="but one runs in this process already"):
        watersmeet.connect(workspace=tmp_path, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="but one was given"):
        watersmeet.connect(spark, workspace=tmp_path, **settings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_packages_that_cannot_be_had_are_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "ivy.xml").write_text(NOWHERE.format(tmp_path / "nothing"))
    run = subprocess.run(
        [sys.executable, "-c", PACKAGES], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    *_, first, _, before, hint = run.stdout.splitlines()
    assert first == "ConnectorError: the Spark package org.nowhere:nothing_2.13:1.0 cannot be downloaded"
    assert before.startswith("ConfigError: org.apache.spark:spark-protobuf_2.13:")
    assert before.endswith("cannot be loaded: this process has started Spark before, without it")
    assert hint == "hint: connect with these packages first, in a new Python process"
    assert "resolving dependencies" not in run.stderr
    assert "\tat " not in run.stderr


def test_what_spark_submit_was_told_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert _default_master() == "local[*]"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert _default_master() == ""
    assert "spark.driver.host" not in settings_for({"spark.master": ""})


def test_what_spark_defaults_say_stands_unless_the_program_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    of_cluster = _new_settings((), "spark://host:7077", {})
    assert of_cluster["spark.shuffle.compress"] == "false"
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.ui.enabled true\n\nspark.shuffle.compress  true \nspark.app.name=of = the team\n"
        "spark.sql.session.timeZone: Europe/Berlin\nspark.master yarn\nspark.executor.memory 2g\n"
        "spark.executor.defaultJavaOptions -Xss4m\nspark.driver.bindAddress 0.0.0.0\nspark.authenticate false\n"
    )
    changed = {"spark.shuffle.compress": "true", "spark.app.name": "of = the team"}
    mine = {"spark.sql.session.timeZone": "Europe/Paris"}
    assert _new_settings((), "spark://host:7077", mine) == {**of_cluster, **changed, **mine}
    local = _new_settings((), "local[1]", {})
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.authenticate"] == "true"


SUBMITTED = """
import watersmeet
spark = watersmeet.connect().spark
print({name: spark.conf.get(f"spark.{name}") for name in ("sql.session.timeZone", "app.name", "ui.enabled", "master")})
"""


@pytest.mark.slow
def test_what_spark_submit_sets_stands(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SUBMITTED)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    told = ["--master", "local[1]", "--name", "mine", "--conf", "spark.sql.session.timeZone=Europe/Berlin"]
    run = subprocess.run(
        [submit, *told, "job.py"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    found = {"sql.session.timeZone": "Europe/Berlin", "app.name": "mine", "ui.enabled": "false", "master": "local[1]"}
    assert str(found) in run.stdout, run.stderr[-4000:]


def test_a_master_that_is_none() -> None:
    with pytest.raises(ConfigError, match="is no place where Spark runs"):
        watersmeet.connect(master="nonsense")


def test_a_python_that_the_driver_lacks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command, hint in (("./environment/bin/python", "ln -s"), ("/opt/nowhere/python", "same path on all machines")):
        monkeypatch.setenv("PYSPARK_PYTHON", command)
        with pytest.raises(ConfigError, match="there is no such program here") as raised:
            launch_jvm((), "spark://nowhere:7077", {})
        assert hint in str(raised.value.hint)
