"""The Spark session under a Watersmeet session: a new one with suitable settings, or a running one, checked."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from watersmeet.connectors.packages import coordinates
from watersmeet.errors import ConfigError
from watersmeet.filesystems import SETTINGS_VARIABLE, encoded_s3_settings, set_s3_settings
from watersmeet.runtime.fork_server import SOCKET_VARIABLE, fork_server
from watersmeet.runtime.hadoop_settings import s3_settings
from watersmeet.runtime.masters import cores_of_local_cluster, is_local, local_cores, with_retries
from watersmeet.runtime.process_folder import LONGEST_SOCKET_PATH, process_folder
from watersmeet.runtime.real_time.spark_needs import PIPELINED
from watersmeet.runtime.worker_python import LOG_VARIABLE, worker_python
from watersmeet.session.jvm import AVRO_LIMITS, LOOPBACK, not_started, silence_end_of_jvm, start_jvm
from watersmeet.session.jvm_names import keep_names
from watersmeet.session.spark_configuration import configured
from watersmeet.session.warm_executors import keep_executors_warm

_STATE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
#: What operators need, what limits hostile records, what keeps a local Spark on loopback: only ``config`` changes it.
_OURS = (
    "spark.python.daemon.module",
    "spark.executor.defaultJavaOptions",
    "spark.authenticate",
    "spark.driver.host",
    "spark.driver.bindAddress",
)
#: A task waits 1 s for the executor that holds its bucket's state, even if that one is dead, and not at all for another
#: on the same host, which may just have started (warm_executors.py).  Spark looks for free slots every 200 ms, so that
#: the wait ends on time.
_PLACEMENT = {
    "spark.locality.wait.process": "1s",
    "spark.locality.wait.node": "0s",
    "spark.scheduler.revive.interval": "200ms",
}
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def open_spark(
    spark: SparkSession | None, packages: Iterable[str], master: str | None, config: Mapping[str, str] | None
) -> SparkSession:
    """Return the session that was passed, else the one that runs in this process, else a new one.

    Operators keep their state in RocksDB: a session with another state store provider gets that one.

    Raises ``ConfigError`` if settings for a new session come with a running one and for a Spark Connect session,
    ``ConnectorError`` if a package cannot be downloaded, and ``WatersmeetError`` if Spark does not start.
    """
    _check_master(master)
    packages, config = tuple(packages), config or {}
    _refuse_connect(spark, config)
    running = SparkContext._active_spark_context is not None
    if spark is None and not running:
        launch_jvm(packages, master, config)
        spark = _new_spark(_new_settings(packages, master, config))
    elif packages or master or config:
        raise ConfigError(
            "packages, master and config are for a new Spark session, but one "
            + ("was given" if spark is not None else "runs in this process already"),
            hint="set them when that session is built"
            if spark is not None
            else "leave them out to use that one, or stop it first (its method stop)",
        )
    elif spark is None:
        spark = SparkSession.builder.getOrCreate()
    keep_names(spark._jvm)
    if "RocksDB" not in str(spark.conf.get(_STATE_PROVIDER)):
        spark.conf.set(_STATE_PROVIDER, _ROCKSDB)
    if is_local(str(spark.sparkContext.master)):
        spark.sparkContext.pythonExec = worker_python()
        if (server := fork_server()) is not None:
            spark.sparkContext.environment[SOCKET_VARIABLE] = server
    set_s3_settings(s3_settings(spark))
    spark.sparkContext.environment[SETTINGS_VARIABLE] = encoded_s3_settings()
    spark.sparkContext.environment[LOG_VARIABLE] = str(process_folder().path / "python-workers.log")
    keep_executors_warm(spark)
    return spark


def launch_jvm(
    packages: Iterable[str],
    master: str | None,
    config: Mapping[str, str] | None,
    record: Path | None = None,
    output: int | None = None,
) -> None:
    """Start the JVM for a new session; does nothing if this process has one.

    It takes seconds in which a caller can do other work before ``open_spark``, which takes the same arguments.  It may
    run in another thread.  For ``record`` and ``output`` see ``start_jvm``.  Raises like ``open_spark``.
    """
    _check_master(master)
    packages, config = tuple(packages), config or {}
    _refuse_connect(None, config)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = _new_settings(packages, master, config)
    if is_local(settings["spark.master"]):
        fork_server()  # it imports what it needs while the JVM starts
    else:
        _check_worker_python(os.environ["PYSPARK_PYTHON"])
    start_jvm(settings, coordinates(packages), record, output)


def settings_for(config: Mapping[str, str]) -> dict[str, str]:
    """All settings of a new session; ``config`` names ``spark.master``, and what it sets takes precedence."""
    settings = {
        "spark.app.name": "watersmeet",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        _STATE_PROVIDER: _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.python.daemon.module": "watersmeet.runtime.daemon",
        # rows are packed one Arrow batch at a time: larger batches cost less per row
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        PIPELINED: "true",
        # how long a streaming shuffle may keep rows: used by queries in real time alone
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
    }
    master = config["spark.master"]
    if is_local(master):
        # Spark makes a random secret, which nothing shows; on another master, all its machines must agree on one
        settings["spark.authenticate"] = "true"
        # not elsewhere: executors on other machines must reach the driver
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = LOOPBACK
        settings["spark.sql.shuffle.partitions"] = str(local_cores(master) or os.cpu_count() or 1)
        # A task that sorts a few frames by bucket would allocate, and clear, a page of up to 64 MB. Not elsewhere:
        # frames are larger there, and a task may have 8,192 pages.
        settings["spark.buffer.pageSize"] = "1m"
        settings |= _sockets(process_folder().path)
    else:
        # these stand before the user's own, in spark.executor.extraJavaOptions
        settings["spark.executor.defaultJavaOptions"] = " ".join(AVRO_LIMITS)
        # to compress what is sent takes a fifth of all that the JVMs do
        settings["spark.shuffle.compress"] = "false"
        settings |= _PLACEMENT
        if cores := cores_of_local_cluster(master):
            settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = LOOPBACK
            settings["spark.sql.shuffle.partitions"] = str(cores)
    return {**settings, **config, "spark.master": with_retries(master)}


def _sockets(folder: Path) -> dict[str, str]:
    """Settings by which the JVM and its Python workers talk over sockets in ``folder``, if its path allows it.

    It must be short, and have no capital letter: PySpark's workers read the path of a socket in lower case.  Over TCP,
    a small message waits up to 40 ms for the receipt of the one before it.
    """
    path = f"{folder}/.{uuid.uuid4()}.sock"
    if len(path.encode()) > LONGEST_SOCKET_PATH or path != path.lower():
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}


def _check_master(master: str | None) -> None:
    if master is not None and re.match(r"local$|local\[|spark://|yarn$|k8s://", master) is None:
        if cores_of_local_cluster(master):
            return
        raise ConfigError(
            f"master = {master!r} is no place where Spark runs",
            hint="write local[*], local-cluster[EXECUTORS,CORES,MEBIBYTES], spark://HOST:PORT, yarn or k8s://URL",
        )


def _check_worker_python(command: str) -> None:
    """Raise ``ConfigError`` if the driver's machine lacks the Python of the executors, which Spark starts here too."""
    if shutil.which(command) is None:
        raise ConfigError(
            f"PYSPARK_PYTHON is {command!r}, and there is no such program here",
            detail="Spark starts the Python of the executors on the driver's machine too, at the start of a query",
            hint="if it comes from an archive that only executors unpack, link the environment into this folder: "
            "ln -s PATH_OF_ENVIRONMENT environment"
            if command.startswith("./")
            else "install Python at the same path on all machines, the driver's among them",
        )


def _new_settings(packages: Iterable[str], master: str | None, config: Mapping[str, str]) -> dict[str, str]:
    settings = settings_for({"spark.master": master or _default_master(), **config})
    mine = {"spark.master", *_OURS, *config}
    settings |= {name: value for name, value in configured().items() if name in settings and name not in mine}
    if wanted := coordinates(packages):
        settings.setdefault("spark.jars.packages", ",".join(wanted))
    return settings


def _new_spark(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        if value:
            builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - the gateway raises bare exceptions if the JVM does not start
        raise not_started(error) from None
    spark.sparkContext.setLogLevel("ERROR")
    silence_end_of_jvm(spark.sparkContext._accumulatorServer)
    return spark


def _default_master() -> str:
    """All cores of this machine; under spark-submit none, so that its own setting holds."""
    return "" if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]"


def _refuse_connect(spark: object, config: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for a Spark Connect session, and for settings that would create one."""
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    would_be = spark is None and ("spark.remote" in config or "SPARK_REMOTE" in os.environ)
    if is_connect or would_be:
        raise ConfigError(
            "Watersmeet needs a classic Spark session, not one of Spark Connect: it works with the driver's JVM",
            hint="create the session with SparkSession.builder.master(…), without remote(…) and SPARK_REMOTE, or call "
            "watersmeet.connect() without one",
        )
