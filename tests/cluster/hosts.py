"""Hosts that share nothing, on one machine: each has a network, a host name and folders of its own.

They are namespaces of the kernel, made by ``unshare`` and ``ip``, with a bridge between them. What is installed on the
machine they all see, but none may write to it: each writes to its own ``/tmp`` and ``/dev/shm``, which are in memory.

A process that makes hosts must be alone in namespaces itself: start it by ``isolated``. When it ends, the kernel ends
all that it has started. Neither needs more rights than a user has, where the kernel lets users make namespaces.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pyspark

from tests.cluster.shares import CpuShare

_BRIDGE = "hosts"
_NETWORK = "10.77.0"
_NAMES = "/run/hosts"
WORK_FOLDER, SHARED_FOLDER, SPARK_FOLDER = "/dev/shm/work", "/dev/shm/shared", "/dev/shm/spark"
#: What the first process in the namespaces does before it runs its program.
_ENTER = f"""
mount -t tmpfs tmpfs /run && mkdir /run/netns
echo "127.0.0.1 localhost" > {_NAMES} && mount --bind {_NAMES} /etc/hosts
ip link set lo up
ip link add {_BRIDGE} type bridge && ip addr add {_NETWORK}.1/24 dev {_BRIDGE} && ip link set {_BRIDGE} up
exec "$@"
"""
_ON_HOST = """
mount -t tmpfs tmpfs /dev/shm && cd /dev/shm && mkdir work shared image spark
[ -z "$BARE" ] || mount --bind "$BARE" spark
mount --bind "$REPOSITORY" image && mount -o remount,bind,ro image && mount --bind "$WORK" work
[ -z "$SHARED" ] || mount --bind "$SHARED" shared
mount -o remount,bind,ro / && mount -t tmpfs tmpfs /tmp
[ -d "$REPOSITORY" ] || { mkdir -p "$REPOSITORY" && mount --bind image "$REPOSITORY"; }
[ -z "$BARE" ] || mount -t tmpfs tmpfs "$ENVIRONMENT"
hostname "$HOST" && cd /tmp && exec "$@"
"""


def isolated(command: Sequence[str]) -> list[str]:
    """The command line that runs a program where it can make hosts."""
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    spaces = ["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *user, *spaces, "sh", "-ec", _ENTER, "sh", *command]


def can_isolate() -> bool:
    """Whether this machine lets its user make such hosts."""
    try:
        return subprocess.run(isolated(["true"]), capture_output=True, timeout=20, check=False).returncode == 0
    except OSError:
        return False


class Host:
    """One host; the program that makes it is ``isolated``.

    Its ``WORK_FOLDER`` is a folder of its own below ``folder``, which may have files already.  Hosts with a
    ``shared`` folder have that one in common, as ``SHARED_FOLDER``.  A ``bare`` host has Spark, as ``SPARK_FOLDER``,
    and Python, but none of the packages that this project needs.
    """

    def __init__(self, name: str, number: int, folder: Path, shared: Path | None = None, *, bare: bool = False) -> None:
        self.name = name
        self._shared = shared
        self._bare = bare
        self._folder = folder / name
        self._folder.mkdir(exist_ok=True)
        self.address = f"{_NETWORK}.{number}"
        outside = f"v{number}"
        for line in (
            f"netns add {name}",
            f"link add {outside} type veth peer name eth0 netns {name}",
            f"link set {outside} master {_BRIDGE} up",
            f"-n {name} link set lo up",
            f"-n {name} addr add {self.address}/24 dev eth0",
            f"-n {name} link set eth0 up",
        ):
            subprocess.run(["ip", *shlex.split(line)], check=True, capture_output=True, text=True, timeout=20)
        with Path(_NAMES).open("a") as names:
            names.write(f"{self.address} {name}\n")

    def start(
        self,
        command: Sequence[str],
        log: IO[bytes] | None = None,
        variables: Mapping[str, str] | None = None,
        share: CpuShare | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program on the host; ``log`` takes its output, by default that of this process."""
        environment = {
            **os.environ,
            **(variables or {}),
            "HOST": self.name,
            "REPOSITORY": str(repository()),
            "WORK": str(self._folder),
            "SHARED": str(self._shared or ""),
            "BARE": str(Path(pyspark.__file__).parent) if self._bare else "",
            "ENVIRONMENT": sys.prefix,
            "SPARK_LOCAL_IP": self.address,
        }
        spaces = ["unshare", "--mount", "--uts", "sh", "-ec", _ON_HOST, "sh"]
        whole = ["ip", "netns", "exec", self.name, *spaces, *command]
        if share is not None:
            whole = share.command(whole)
        return subprocess.Popen(whole, stdout=log, stderr=log, env=environment)


def repository() -> Path:
    """The folder of this project."""
    return Path(__file__).resolve().parents[2]
