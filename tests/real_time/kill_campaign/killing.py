"""Whom to kill, and when: at any time, when an epoch's state is being written, or when an epoch has just committed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from tests.support.workers import processes

_LOOK_SECONDS = 0.002
_MOST_SECONDS = 60.0


class Victim(StrEnum):
    """What is killed."""

    WORKER = "worker"
    DAEMON = "daemon"
    FORK_SERVER = "fork_server"
    JVM = "jvm"
    DRIVER = "driver"

    @property
    def ends_the_driver(self) -> bool:
        """Whether the driver's process ends too, and must be started again."""
        return self in (Victim.JVM, Victim.DRIVER)

    def of(self, driver: int) -> list[int]:
        """The processes of a driver that are meant."""
        found = processes(driver)
        return {
            Victim.WORKER: found.workers,
            Victim.DAEMON: found.daemons,
            Victim.FORK_SERVER: found.fork_server,
            Victim.JVM: found.jvm,
            Victim.DRIVER: [driver],
        }[self]


class Moment(StrEnum):
    """When it is killed."""

    ANY = "any"
    STATE_WRITTEN = "before the commit"
    COMMITTED = "after the commit"

    def wait(self, workspace: Path, drawn: random.Random) -> None:
        """Wait for it, in some query of the workspace; for at most as long as an epoch can reasonably take."""
        if self is Moment.ANY:
            time.sleep(drawn.random())
            return
        pattern = "epochs/*/*/*/*.state" if self is Moment.STATE_WRITTEN else "spark/commits/*"
        _wait_for_a_file(lambda: {str(path) for path in workspace.glob(f"queries/*/{pattern}")})
        time.sleep(drawn.choice([0, 0, 0.01, 0.05]))


def kill(victim: Victim, driver: int, drawn: random.Random) -> bool:
    """Kill one of them; False if there is none now."""
    found = victim.of(driver)
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(drawn.choice(found), signal.SIGKILL)
    return True


def _wait_for_a_file(names: Callable[[], set[str]]) -> None:
    before, deadline = names(), time.monotonic() + _MOST_SECONDS
    while not (now := names()) - before:
        assert time.monotonic() < deadline, "no epoch has ended"
        before = now
        time.sleep(_LOOK_SECONDS)
