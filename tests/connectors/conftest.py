"""One Spark session with the Kafka and Avro packages for all connector tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.support.kafka_broker import Broker, JarsNotFoundError, kafka_broker, resolve_jars
from watersmeet.connectors.packages import coordinates

# Package registries may lag behind PySpark. These are the newest sets known to work with PySpark 4.3, for where the
# packages of its own version are not there yet; each line is resolved by itself, without what the others bring.
_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_BUNDLED = ("org.apache.hadoop:*", "org.apache.kafka:*", "org.lz4:*", "org.xerial.snappy:*", "org.slf4j:*")
_STAND_INS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "kafka": (("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", (_TOKENS,)), (f"{_TOKENS}:4.0.0", _BUNDLED)),
    "avro": (("org.apache.spark:spark-avro_2.13:4.1.1", ()),),
    "protobuf": (),
}


_stood_in: list[str] = []


def package_jars(name: str) -> tuple[str, ...]:
    """Jars of a Spark package: of PySpark's own version, else of a stand-in (told in the summary), else none."""
    try:
        return resolve_jars(coordinates([name]))
    except JarsNotFoundError:
        found: list[str] = []
        for coordinate, excludes in _STAND_INS[name]:
            found += resolve_jars([coordinate], excludes)
        used = ", ".join(coordinate for coordinate, _ in _STAND_INS[name]) or "nothing"
        _stood_in.append(f"{coordinates([name])[0]} is not to be had; the tests used {used}")
        return tuple(found)


def struct_of(ddl: str) -> StructType:
    """Declared columns, written as in CREATE STREAM; needs a running session."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = dict.fromkeys(jar for name in ("kafka", "avro", "protobuf") for jar in package_jars(name))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", ",".join(jars))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with kafka_broker() as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _stood_in:
        terminalreporter.write_line(line)
