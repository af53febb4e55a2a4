"""The Python workers of a Spark session, for tests that kill them."""

from __future__ import annotations

import subprocess

from pyspark.sql import SparkSession


def workers(spark: SparkSession) -> list[int]:
    """The Python workers of this session: what the daemons forked that its JVM started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc.pid
    return [child for child, parent in parents.items() if parents.get(parent) == jvm]
