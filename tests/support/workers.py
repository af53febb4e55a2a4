"""The processes of a Spark on this machine, for tests that kill them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one driver, by what they do; daemons fork workers."""

    jvm: list[int]
    fork_server: list[int]
    daemons: list[int]
    workers: list[int]


def processes(driver: int) -> Processes:
    """What a driver has started: a daemon's parent is the fork server, or else the JVM."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()]

    def children(of: list[int], what: str) -> list[int]:
        return [int(child) for child, parent, *args in lines if int(parent) in of and what in " ".join(args)]

    def pythons(of: list[int]) -> list[int]:
        """Not the JVM with which Spark's shell begins: its classes are in a folder of Python's."""
        found = ((int(child), int(parent), args[0].split()[0]) for child, parent, *args in lines if args)
        return [child for child, parent, program in found if parent in of and "python" in Path(program).name]

    jvm, fork_server = children([driver], "SparkSubmit"), children([driver], "fork_server")
    daemons = pythons([*jvm, *fork_server])
    return Processes(jvm, fork_server, daemons, pythons(daemons))


def workers(spark: SparkSession) -> list[int]:
    """The Python workers of this process's Spark."""
    assert spark.sparkContext._gateway is not None
    return processes(os.getpid()).workers


def is_alive(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
