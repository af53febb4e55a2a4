"""Spark for Watersmeet: a new local session with the settings that fit, or the user's own, checked."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from watersmeet.connectors.packages import coordinates
from watersmeet.errors import ConfigError, WatersmeetError

_STATE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def open_spark(
    spark: SparkSession | None, packages: Iterable[str], master: str | None, config: Mapping[str, str] | None
) -> SparkSession:
    """The session given, made ready, or a new local one.

    Raises ``ConfigError`` where settings for a new session come with one that is there, ``WatersmeetError`` where
    Spark does not start.
    """
    if spark is None:
        spark = _new_spark(packages, master, config or {})
    elif packages or master or config:
        raise ConfigError(
            "packages, master and config are for a new Spark session, but one was given",
            hint="set them when that session is built",
        )
    if "RocksDB" not in str(spark.conf.get(_STATE_PROVIDER)):
        spark.conf.set(_STATE_PROVIDER, _ROCKSDB)
    if str(spark.sparkContext.master).startswith("local"):
        spark.sparkContext.pythonExec = sys.executable
    return spark


def _new_spark(packages: Iterable[str], master: str | None, config: Mapping[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        _STATE_PROVIDER: _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.python.daemon.module": "watersmeet.runtime.daemon",
        # rows are packed a batch at a time: larger ones cost less each
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        **config,
    }
    if wanted := coordinates(packages):
        settings.setdefault("spark.jars.packages", ",".join(wanted))
    builder = SparkSession.builder.appName("watersmeet").master(master or "local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if "spark.sql.shuffle.partitions" not in settings and (master or "local").startswith("local"):
        builder = builder.config("spark.sql.shuffle.partitions", str(_local_cores(master)))
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001 - the gateway raises bare exceptions where the JVM does not start
        raise WatersmeetError(
            f"Spark did not start: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint="is there a Java 17 or newer (JAVA_HOME)?"
            + (f" can the packages {', '.join(wanted)} be downloaded?" if wanted else ""),
        ) from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _local_cores(master: str | None) -> int:
    found = re.fullmatch(r"local\[(\d+)\]", master or "")
    return int(found[1]) if found else os.cpu_count() or 1
