"""A Spark cluster of hosts that share nothing but an object store, or nothing but one folder, on one machine.

``run_in_cluster`` starts a master, executors and a host for the driver (hosts.py), and runs a module there.
``CLUSTER_MASTER`` holds the master's URL then. With a store, which takes any credentials, ``CLUSTER_STORE`` holds its
URL and ``CLUSTER_JARS`` what Spark needs to use it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

import pyspark

from tests.cluster.hosts import SPARK_FOLDER, WORK_FOLDER, Host, isolated, repository
from tests.cluster.shares import CpuShare
from tests.support.jobs import QUICK_JVM
from tests.support.spark_jars import s3_jars

EXECUTORS = 3
_START_SECONDS, _LONGEST_SECONDS, _LOOK_SECONDS = 180.0, 1800.0, 0.25
_STORE_PORT, _MASTER_PORT = 9000, 7077
#: Whoever has these may use the store; each process of the cluster finds them in its environment.
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "reader",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_DAEMONS = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}


@contextmanager
def cluster(
    logs: Path, executors: int, *, with_store: bool, bare: bool, cores: float | None = None
) -> Iterator[Callable[[Sequence[str]], int]]:
    """Start a cluster, whose processes write to ``logs``; the caller is ``isolated``.

    Without a store the hosts share a folder.  If it is ``bare``, executors have no packages but Spark's.  With
    ``cores``, each executor has so much of a core, and runs one task at a time; ``cpu.jsonl`` says what it uses.  What
    it gives runs a program on the driver's host to its end, and returns the exit code.
    """
    shared = None if with_store else logs / "shared"
    if shared is not None:
        shared.mkdir(exist_ok=True)
    numbers = {"master": 3, "driver": 4, **{f"executor{number}": 10 + number for number in range(1, executors + 1)}}
    master, driver, *workers = (
        Host(name, number, logs, shared, bare=bare and name.startswith("executor")) for name, number in numbers.items()
    )
    master_url = f"spark://{master.address}:{_MASTER_PORT}"
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    worker_class = f"{SPARK_FOLDER}/bin/spark-class" if bare else spark_class
    moto_server = str(Path(sys.executable).with_name("moto_server"))
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        shares = {} if cores is None else {host.name: CpuShare(host.name, cores) for host in workers}
        for share in shares.values():
            stack.callback(share.close)

        def start(host: Host, *command: str) -> subprocess.Popen[bytes]:
            log: IO[bytes] = stack.enter_context((logs / f"{host.name}.log").open("wb"))
            return host.start(command, log, {**_CREDENTIALS, **_DAEMONS}, shares.get(host.name))

        processes = [
            start(master, spark_class, f"{deploy}.master.Master", "--host", master.address, "--webui-port", "8080")
        ]
        known = {**_CREDENTIALS, "CLUSTER_MASTER": master_url, "PYTHONPATH": f"{repository()}/src:{repository()}"}
        if with_store:
            store = Host("store", 2, logs)
            known["CLUSTER_STORE"] = f"http://{store.address}:{_STORE_PORT}"
            processes.append(start(store, moto_server, "-H", store.address, "-p", str(_STORE_PORT)))
        for host in workers:
            tasks = "2" if cores is None else "1"
            limits = ("--cores", tasks, "--memory", "1g", "--work-dir", WORK_FOLDER)
            processes.append(
                start(host, worker_class, f"{deploy}.worker.Worker", "--host", host.address, *limits, master_url)
            )
        try:
            if with_store:
                _wait_for(f"{known['CLUSTER_STORE']}/moto-api/", processes)
            _wait_for(f"http://{master.address}:8080/json/", processes, f'"aliveworkers" : {executors}')
            if shares:
                stack.enter_context(_observed(shares, logs / "cpu.jsonl"))
            yield lambda command: driver.start(command, variables=known).wait()
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait(10)


@contextmanager
def _observed(shares: Mapping[str, CpuShare], path: Path) -> Iterator[None]:
    """Write the time and the CPU seconds of each share to a file, as lines of JSON, while the block runs."""
    ends = threading.Event()

    def watch() -> None:
        with path.open("w") as out:
            while not ends.wait(_LOOK_SECONDS):
                used = {name: share.seconds() for name, share in shares.items()}
                print(json.dumps({"at": time.time(), **used}), file=out, flush=True)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(10)


def _wait_for(url: str, processes: Sequence[subprocess.Popen[bytes]], text: str = "") -> None:
    """Wait until a page can be read that has the text."""
    ends = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends:
        assert all(process.poll() is None for process in processes), "a process of the cluster has ended: see its log"
        try:
            with urlopen(url, timeout=2) as page:
                if text in page.read().decode():
                    return
        except (URLError, OSError):
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} has not answered {text!r} for {_START_SECONDS:.0f} s")


def run_in_cluster(
    logs: Path,
    module: str,
    *arguments: str,
    executors: int = EXECUTORS,
    with_store: bool = True,
    bare: bool = False,
    cores: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Start a cluster, run a module on its driver's host, and end all of it; its output comes back."""
    common = "store" if with_store else "folder"
    own = [str(logs), str(executors), common, "bare" if bare else "", str(cores or ""), module]
    command = isolated([sys.executable, "-m", "tests.cluster.cluster", *own, *arguments])
    # on a host nothing can be downloaded
    environment = {**os.environ, **({"CLUSTER_JARS": ":".join(s3_jars())} if with_store else {})}
    return subprocess.run(
        command,
        cwd=repository(),
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )


def _main() -> int:
    logs, executors, common, bare, cores, module, *arguments = sys.argv[1:]
    kind = {"with_store": common == "store", "bare": bool(bare)}
    with cluster(Path(logs), int(executors), **kind, cores=float(cores) if cores else None) as run:
        return run([sys.executable, "-m", module, *arguments])


if __name__ == "__main__":
    sys.exit(_main())
