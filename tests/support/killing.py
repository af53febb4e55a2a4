"""Whom to kill, and when: at any time, or when a batch (in real time an epoch) has come to a certain point."""

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

_LOOK_SECONDS = 0.01
_MOST_SECONDS = 300.0


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
    BEGUN = "batch begun"
    MANIFEST_WRITTEN = "a bucket's manifest written"
    STATE_COMMITTED = "a bucket's state committed"
    EPOCH_WRITTEN = "an epoch's state written"
    COMMITTED = "committed"

    @property
    def files(self) -> str:
        """Of which files of a query's checkpoint a new one shows it."""
        return {
            Moment.BEGUN: "spark/offsets/[0-9]*",
            Moment.MANIFEST_WRITTEN: "sizes/*/*/*/*",
            Moment.STATE_COMMITTED: "spark/state/*/*/*.changelog",
            Moment.EPOCH_WRITTEN: "epochs/*/*/*/*.state",
            Moment.COMMITTED: "spark/commits/[0-9]*",
        }[self]

    def wait(self, workspace: Path, drawn: random.Random, has_ended: Callable[[], bool] = lambda: False) -> None:
        """Wait for it, in some query of the workspace, unless there will be none since the job has ended.

        Raises ``AssertionError`` if it takes longer than a batch reasonably can.
        """
        if self is Moment.ANY:
            time.sleep(drawn.random())
            return
        wait_for_a_file(lambda: {str(path) for path in workspace.glob(f"queries/*/{self.files}")}, has_ended)
        time.sleep(drawn.choice([0, 0, 0.01, 0.05]))


#: Those of micro-batches, and those of epochs in real time.
OF_BATCHES = (Moment.ANY, Moment.BEGUN, Moment.MANIFEST_WRITTEN, Moment.STATE_COMMITTED, Moment.COMMITTED)
OF_EPOCHS = (Moment.ANY, Moment.EPOCH_WRITTEN, Moment.COMMITTED)


def kill(victim: Victim, driver: int, drawn: random.Random) -> bool:
    """Kill one of them; False if there is none now."""
    found = victim.of(driver)
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(drawn.choice(found), signal.SIGKILL)
    return True


def wait_for_a_file(names: Callable[[], set[str]], has_ended: Callable[[], bool]) -> None:
    """Wait until there is a new name among some, unless there will be none."""
    before, deadline = names(), time.monotonic() + _MOST_SECONDS
    while not (now := names()) - before and not has_ended():
        assert time.monotonic() < deadline, "no batch has ended"
        before = now
        time.sleep(_LOOK_SECONDS)
