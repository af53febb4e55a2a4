"""The Python workers of a Spark session, for tests that kill them."""

from __future__ import annotations

import os
import subprocess

from pyspark.sql import SparkSession


def workers(spark: SparkSession) -> list[int]:
    """The Python workers of this session: what the daemons forked that its fork server, or else its JVM, started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(child): int(parent) for child, parent, *_ in lines}
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    starters = {gateway.proc.pid} | {
        int(child) for child, parent, *args in lines if int(parent) == os.getpid() and "fork_server" in " ".join(args)
    }
    return [child for child, parent in parents.items() if parents.get(parent) in starters]


def is_alive(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
