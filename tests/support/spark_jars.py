"""Jars of the Spark packages that tests and benchmarks use, from the package registry or Ivy's cache."""

from __future__ import annotations

from tests.support.kafka_broker import JarsNotFoundError, resolve_jars
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

#: A sentence for each package, by name, that is not available in its own version.
notes: dict[str, str] = {}


def package_jars(name: str) -> tuple[str, ...]:
    """Jars of a Spark package: of PySpark's own version, else of a stand-in, else none; ``notes`` tells which."""
    wanted = coordinates([name])
    try:
        return resolve_jars(wanted)
    except JarsNotFoundError:
        pass
    found: list[str] = []
    try:
        for coordinate, excludes in _STAND_INS[name]:
            found += resolve_jars([coordinate], excludes)
    except JarsNotFoundError:
        notes[name] = f"neither {wanted[0]} nor a stand-in for it is available"
        return ()
    used = ", ".join(coordinate for coordinate, _ in _STAND_INS[name]) or "nothing"
    notes[name] = f"{wanted[0]} is not available; used instead: {used}"
    return tuple(found)


# What Hadoop needs for S3. Its own list names the SDK as one jar of 600 MB; these are the parts that it uses. Netty and
# the loggers are Spark's.
_S3 = (
    (
        ("org.apache.hadoop:hadoop-aws:3.5.0",),
        (
            "software.amazon.awssdk:bundle",
            "org.apache.hadoop:hadoop-client-api",
            "org.apache.hadoop:hadoop-client-runtime",
        ),
    ),
    (
        tuple(f"software.amazon.awssdk:{part}:2.35.4" for part in ("s3", "s3-transfer-manager", "sts")),
        ("io.netty:*", "commons-codec:*", "commons-logging:*", *_BUNDLED),
    ),
)


def s3_jars() -> tuple[str, ...]:
    """Jars by which Spark reads and writes an object store by the S3 protocol."""
    return tuple(jar for coordinates, excludes in _S3 for jar in resolve_jars(coordinates, excludes))
