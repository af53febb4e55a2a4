"""A YARN cluster on loopback: Hadoop's own resource manager and node managers, in one JVM.

Each node manager has local folders of its own, in which its containers run.  They are processes of this machine, so
they see its disk.  Hadoop's class for this is in a jar that Spark does not need; it comes from the package registry.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from tests.support.kafka_broker import resolve_jars

_STOP_SECONDS = 60
_JARS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.bouncycastle:bcprov-jdk18on:1.82",
    "org.bouncycastle:bcpkix-jdk18on:1.82",
)
#: What Spark has itself.
_EXCLUDED = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime", "org.slf4j:*")
_SETTINGS = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "3072",
    # a machine with little free disk would have no healthy node
    "yarn.nodemanager.disk-health-checker.enable": "false",
    # what the containers print stays, for who looks into a failure
    "yarn.nodemanager.delete.debug-delay-sec": "3600",
}


def yarn_jars() -> list[str]:
    """The jars of the cluster; raises ``JarsNotFoundError``."""
    return list(resolve_jars(_JARS, _EXCLUDED))


@contextmanager
def yarn_cluster(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """Start a cluster that keeps everything in ``folder``; it gives the variables by which programs find it."""
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.driver.extraClassPath", ":".join(yarn_jars()))
    conf.set("spark.driver.extraJavaOptions", f"-Dtest.build.data={folder}/nodes")
    with (folder / "yarn.log").open("wb") as log:
        gateway: Any = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        try:
            yield {"HADOOP_CONF_DIR": str(_start(gateway, folder, nodes))}
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends when its standard input does
            try:
                gateway.proc.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait(_STOP_SECONDS)


def _start(gateway: Any, folder: Path, nodes: int) -> Path:
    """Start the daemons, and write the settings by which they are found."""
    hadoop = gateway.jvm.org.apache.hadoop
    given = hadoop.yarn.conf.YarnConfiguration()
    for name, value in _SETTINGS.items():
        given.set(name, value)
    cluster = hadoop.yarn.server.MiniYARNCluster("cluster", nodes, 1, 1)
    cluster.init(given)
    cluster.start()
    assert cluster.waitForNodeManagersToConnect(_STOP_SECONDS * 1000), "not all node managers have come"
    running = cluster.getConfig()
    running.set("fs.defaultFS", "file:///")
    written = folder / "hadoop"
    written.mkdir()
    out = gateway.jvm.java.io.FileOutputStream(str(written / "yarn-site.xml"))
    running.writeXml(out)
    out.close()
    return written


def kill_executor(folder: Path) -> int:
    """Kill one executor of the cluster, and its Python processes; how many processes that were comes back."""
    parents, executors = {}, []
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            is_here = (entry / "cwd").readlink().is_relative_to(folder)
            program = (entry / "cmdline").read_bytes()
        except (OSError, ValueError):  # no process, or one that has ended
            continue
        if is_here and b"/java\0" in program and b"YarnCoarseGrainedExecutorBackend" in program:
            executors.append(int(entry.name))
    killed = [pid for pid in parents if executors and _descends(pid, executors[0], parents)]
    for pid in killed:
        os.kill(pid, 9)
    return len(killed)


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in (root, 0):
        pid = parents.get(pid, 0)
    return pid == root
