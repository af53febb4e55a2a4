"""The Spark packages (Maven coordinates) that connectors and formats need, and whether a session has them.

PySpark ships without its Kafka, Avro and Protobuf packages. A session can load them only when it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError, ConnectorError, did_you_mean

SCALA_VERSION = "2.13"
"""The one Scala version that Spark 4 is built for."""


class Package(StrEnum):
    """A package of Spark, by the name that users write."""

    KAFKA = "kafka"
    AVRO = "avro"
    PROTOBUF = "protobuf"


_ARTIFACT = {
    Package.KAFKA: f"spark-sql-kafka-0-10_{SCALA_VERSION}",
    Package.AVRO: f"spark-avro_{SCALA_VERSION}",
    Package.PROTOBUF: f"spark-protobuf_{SCALA_VERSION}",
}
_CLASS = {
    Package.KAFKA: "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    Package.AVRO: "org.apache.spark.sql.avro.AvroDataToCatalyst",
    Package.PROTOBUF: "org.apache.spark.sql.protobuf.ProtobufDataToCatalyst",
}
# Ivy downloads packages for Spark; these are its messages about missing packages and about the network.
_MISSING = re.compile(r"(?:unresolved dependency|download failed): ([\w.-]+)#([\w.-]+);([\w.-]+)")
_NETWORK = re.compile(r"^\s*(Host \S+ not found|You probably access .*|Server access error.*)", re.MULTILINE)
_COORDINATE = re.compile(r"[^:\s,]+:[^:\s,]+:[^:\s,]+")


def spark_version() -> str:
    """Return the release of the running PySpark, such as ``4.3.0``, without the suffix of a development build."""
    found = re.match(r"\d+\.\d+\.\d+", pyspark.__version__)
    return found.group() if found else pyspark.__version__


def coordinates(packages: Iterable[str]) -> tuple[str, ...]:
    """Return Maven coordinates for ``spark.jars.packages``, without duplicates.

    A package is a name (``kafka``, ``avro``, ``protobuf``), which gets the version of the running PySpark, or a full
    coordinate (``group:artifact:version``), which overrides the named package of the same artifact. Raises
    ``ConfigError`` for anything else.
    """
    given = [text.strip() for text in packages]
    explicit = [text for text in given if _COORDINATE.fullmatch(text)]
    pinned = {text.split(":")[1] for text in explicit}
    found: list[str] = []
    for text in given:
        if text in explicit:
            found.append(text)
            continue
        try:
            artifact = _ARTIFACT[Package(text.lower())]
        except ValueError:
            raise ConfigError(
                f"no Spark package is named {text!r}",
                hint=did_you_mean(text, [package.value for package in Package]),
            ) from None
        if artifact not in pinned:
            found.append(f"org.apache.spark:{artifact}:{spark_version()}")
    return tuple(dict.fromkeys(found))


def has_package(spark: SparkSession, package: Package) -> bool:
    """Return whether the running session can load the classes of ``package``."""
    return _can_load(spark._jvm, package)


def not_loaded(jvm: Any, wanted: Iterable[str]) -> list[str]:
    """Return the coordinates of known packages that the running JVM cannot load."""
    known = {artifact: package for package, artifact in _ARTIFACT.items()}
    found = ((text, known.get(text.split(":")[1])) for text in wanted)
    return [text for text, package in found if package is not None and not _can_load(jvm, package)]


def download_failure(said: str) -> ConnectorError | None:
    """Return the error for Spark's output of a failed start; None where no package is missing."""
    missing = dict.fromkeys(":".join(match) for match in _MISSING.findall(said))
    if not missing:
        return None
    network = dict.fromkeys(match.strip() for match in _NETWORK.findall(said))
    return ConnectorError(
        f"{'Spark packages' if len(missing) > 1 else 'the Spark package'} {', '.join(missing)} cannot be downloaded",
        detail="\n".join(network) or None,
        hint="does that version exist, and can this machine reach a Maven repository? "
        "Spark's settings spark.jars.repositories and spark.jars.ivySettings name others",
    )


def _can_load(jvm: Any, package: Package) -> bool:
    from py4j.protocol import Py4JJavaError

    # only the session's own class loader sees its packages, not the one that loaded the Python gateway
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    try:
        jvm.java.lang.Class.forName(_CLASS[package], False, loader)
    except Py4JJavaError:
        return False
    return True


def require_package(spark: SparkSession, package: Package) -> None:
    """Raise ``ConnectorError`` with how to start a session with ``package``, where this session lacks it."""
    if not has_package(spark, package):
        raise ConnectorError(
            f"the {package.value.capitalize()} package is not in this Spark session",
            hint=f'start it with watersmeet.connect(packages=["{package.value}"]) '
            f"or --packages {coordinates([package])[0]}",
        )
