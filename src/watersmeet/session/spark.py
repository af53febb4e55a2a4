"""Spark for Watersmeet: a new session with the settings that fit, or one that is there, checked."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from watersmeet.connectors.packages import coordinates, download_failure, not_loaded
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.runtime.worker_python import worker_python

_STATE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LAST_WORDS_SECONDS = 5.0


def open_spark(
    spark: SparkSession | None, packages: Iterable[str], master: str | None, config: Mapping[str, str] | None
) -> SparkSession:
    """The session given or, where none is given, the one that runs in this process, made ready; else a new one.

    The operators keep their state in RocksDB: a session with another state store provider gets that one.

    Raises ``ConfigError`` where settings for a new session come with one that is there, ``ConnectorError`` where a
    package cannot be downloaded, ``WatersmeetError`` where Spark does not start.
    """
    if master is not None and re.match(r"local$|local\[|spark://|yarn$|k8s://", master) is None:
        raise ConfigError(
            f"master = {master!r} is no place where Spark runs",
            hint="write local[*], spark://HOST:PORT, yarn or k8s://URL",
        )
    running = SparkContext._active_spark_context is not None
    if spark is None and not running:
        spark = _new_spark(coordinates(packages), {"spark.master": master or _default_master(), **(config or {})})
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
    if "RocksDB" not in str(spark.conf.get(_STATE_PROVIDER)):
        spark.conf.set(_STATE_PROVIDER, _ROCKSDB)
    if str(spark.sparkContext.master).startswith("local"):
        spark.sparkContext.pythonExec = worker_python()
    return spark


def settings_for(config: Mapping[str, str]) -> dict[str, str]:
    """All settings of a new session; ``config`` holds ``spark.master``, and what it sets is kept."""
    settings = {
        "spark.app.name": "watersmeet",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        _STATE_PROVIDER: _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.python.daemon.module": "watersmeet.runtime.daemon",
        # rows are packed a batch at a time: larger ones cost less each
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }
    master = config["spark.master"]
    if master.startswith("local"):
        # not elsewhere: executors on other machines must reach the driver
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(_local_cores(master))
        # a task that sorts a few frames by bucket would take, and clear, a page of up to 64 MB; not elsewhere: frames
        # are larger there, and a task may have 8,192 pages
        settings["spark.buffer.pageSize"] = "1m"
    return {**settings, **config}


def _new_spark(wanted: Sequence[str], config: Mapping[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = settings_for(config)
    if wanted:
        settings.setdefault("spark.jars.packages", ",".join(wanted))
        _start_jvm(settings, wanted)
    builder = SparkSession.builder
    for name, value in settings.items():
        if value:
            builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - the gateway raises bare exceptions where the JVM does not start
        raise _not_started(error) from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _default_master() -> str:
    """All cores of this machine; what spark-submit was told (nothing, here) where it has started this process."""
    return "" if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]"


def _not_started(error: Exception) -> WatersmeetError:
    return WatersmeetError(
        f"Spark did not start: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
        hint="is there a Java 17 or newer (JAVA_HOME)?",
    )


def _local_cores(master: str) -> int:
    found = re.fullmatch(r"local\[(\d+)\]", master)
    return int(found[1]) if found else os.cpu_count() or 1


# -- packages ----------------------------------------------------------------------------------------------------------


def _start_jvm(settings: Mapping[str, str], wanted: Sequence[str]) -> None:
    """Start the JVM of this process, which fetches the packages ``wanted`` and keeps them as long as it lives.

    It stays when a session is stopped; a later session gets what it has.  Its pages about what was fetched from where
    do not reach the terminal.
    """
    if SparkContext._gateway is not None:
        if missing := not_loaded(SparkContext._jvm, wanted):
            raise ConfigError(
                f"{', '.join(missing)} cannot be loaded: this process has started Spark before, without it",
                hint="connect with these packages first, in a new Python process",
            )
        return
    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    said = _HeldBack()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": said.target})  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - as above
        text = said.all()
        if (failure := download_failure(text)) is None:
            sys.stderr.write(text)
        raise failure or _not_started(error) from None
    said.pass_on()
    SparkContext._ensure_initialized(gateway=gateway)


class _HeldBack:
    """What a JVM says on standard error (``target``): kept while it starts, from then on passed on to ours."""

    def __init__(self) -> None:
        reading, self.target = os.pipe()
        self._kept: list[bytes] = []
        self._has_started = threading.Event()
        self._thread = threading.Thread(
            target=self._read, args=(reading, os.dup(2)), name="watersmeet-jvm", daemon=True
        )
        self._thread.start()

    def all(self) -> str:
        """All that was said by a JVM that did not start."""
        os.close(self.target)
        self._thread.join(_LAST_WORDS_SECONDS)
        return b"".join(self._kept).decode(errors="replace")

    def pass_on(self) -> None:
        """Forget what was kept, and pass on what comes."""
        os.close(self.target)
        self._has_started.set()
        self._kept.clear()

    def _read(self, source: int, ours: int) -> None:
        with open(source, "rb") as lines, open(ours, "wb", buffering=0) as out:
            for line in lines:
                if not self._has_started.is_set():
                    self._kept.append(line)
                    continue
                with suppress(OSError):  # the JVM must not wait because nobody listens to us any more
                    out.write(line)
