"""Executors of a cluster that die, are cut off, stand still, are to leave, or lose what others are to fetch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.chaos.hits import Fault, Hit
from tests.chaos.kills import kill_at
from tests.chaos.rig import Rig
from tests.cluster.cluster import EXECUTORS
from tests.cluster.faults import EXECUTOR, cut_off, kill_executor, processes_of
from tests.support.killing import Moment, Victim

_LONGEST_CUT = 20.0
"""Seconds; what is cut off for fifteen is lost to Spark."""


def _drawn(rig: Rig) -> str:
    time.sleep(rig.drawn.random())
    return f"executor{rig.drawn.randrange(EXECUTORS) + 1}"


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _workers(host: str) -> list[int]:
    return [pid for pid in processes_of(host) if EXECUTOR not in _command(pid) and "python" in _command(pid)]


def _kill(rig: Rig) -> Hit | None:
    host = _drawn(rig)
    killed = kill_executor(host)
    return Hit(f"{host}, {killed} processes killed") if killed else None


def _kill_worker(rig: Rig) -> Hit | None:
    host = _drawn(rig)
    found = _workers(host)
    if not found:
        return None
    with suppress(ProcessLookupError):
        os.kill(rig.drawn.choice(found), signal.SIGKILL)
    return Hit(f"a worker of {host} killed")


def _cut(rig: Rig, seconds: Callable[[Rig], float]) -> Hit:
    host, length = _drawn(rig), seconds(rig)
    cut_off(host, "down")
    try:
        time.sleep(length)
    finally:
        cut_off(host, "up")
    return Hit(f"{host} cut off for {length:.1f} s")


def _decommission(rig: Rig) -> Hit | None:
    host = _drawn(rig)
    found = [pid for pid in processes_of(host) if EXECUTOR in _command(pid)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGPWR)
    return Hit(f"{host} is to leave") if found else None


def _stand_still(rig: Rig) -> Hit | None:
    """Let the workers of an executor stand still: Spark starts their tasks on another host, and takes the first."""
    host = _drawn(rig)
    found = _workers(host)
    for signalled in (signal.SIGSTOP, signal.SIGCONT):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signalled)
        if signalled == signal.SIGSTOP and found:
            time.sleep(rig.drawn.uniform(2, 5))
    return Hit(f"workers of {host} stand still") if found else None


def _lose_shuffles(rig: Rig) -> Hit | None:
    """Delete the files of shuffles of all executors: what is to be fetched is not there."""
    deleted = 0
    time.sleep(rig.drawn.random())
    for number in range(EXECUTORS):
        for pid in processes_of(f"executor{number + 1}")[:1]:
            for path in Path(f"/proc/{pid}/root/tmp").rglob("shuffle_*"):
                with suppress(OSError):
                    path.unlink()
                    deleted += 1
    return Hit(f"{deleted} files of shuffles deleted") if deleted else None


_CLUSTER = ("cluster",)
FAULTS = (
    Fault("executor killed", _CLUSTER, _kill, 4),
    Fault("worker of an executor killed", _CLUSTER, _kill_worker),
    Fault(
        "executor cut off for some seconds", _CLUSTER, partial(_cut, seconds=lambda rig: rig.drawn.uniform(0.5, 6)), 4
    ),
    Fault("executor cut off until it is lost", _CLUSTER, partial(_cut, seconds=lambda rig: _LONGEST_CUT), 1),
    Fault("executor decommissioned", _CLUSTER, _decommission, 4),
    Fault("workers of an executor stand still, with speculation", _CLUSTER, _stand_still, 4),
    Fault("shuffle files of executors deleted", _CLUSTER, _lose_shuffles, 4),
    Fault("driver of a cluster killed", _CLUSTER, partial(kill_at, victim=Victim.DRIVER, point=Moment.ANY), 2),
)
