"""Disks that are full or read-only, and systems that are away, slow, or refuse: a database, a broker, a store."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from tests.chaos.hits import Fault, Hit, until
from tests.chaos.rig import DISKS, Rig

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
Breaks = Callable[[Rig], AbstractContextManager[None]]


def _for_a_while(rig: Rig, breaks: Breaks, what: str, least: float, most: float) -> Hit:
    """Let something be broken for some seconds."""
    time.sleep(rig.drawn.uniform(0, 0.5))
    seconds = rig.drawn.uniform(least, most)
    with breaks(rig):
        time.sleep(seconds)
    return Hit(f"{what} for {seconds:.1f} s")


def _on_the_line(rig: Rig, breaks: Breaks, what: str, least: float, most: float) -> Hit | None:
    """The same of a line; it is no fault if nobody used the line meanwhile."""
    assert rig.line is not None
    before = rig.line.harmed()
    hit = _for_a_while(rig, breaks, what, least, most)
    return hit if rig.line.harmed() > before else None


# -- disks -------------------------------------------------------------------------------------------------------------


@contextmanager
def _full(rig: Rig, name: str) -> Iterator[None]:
    """No byte more on a disk: it becomes as small as what it holds."""
    folder = rig.folder / name
    found = os.statvfs(folder)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    _remount(folder, f"size={max(used, found.f_frsize)}")
    try:
        yield
    finally:
        _remount(folder, f"size={DISKS[name]}")


@contextmanager
def _read_only(rig: Rig) -> Iterator[None]:
    folder, is_over = rig.folder / "disk", until(5)
    while not _remount(folder, "ro") and not is_over():  # busy while somebody writes
        time.sleep(0.005)
    try:
        yield
    finally:
        _remount(folder, "rw")


def _remount(folder: Path, option: str) -> bool:
    command = ["mount", "-o", f"remount,{option}", str(folder)]
    return subprocess.run(command, check=False, capture_output=True, timeout=20).returncode == 0


def _delete(rig: Rig, pattern: str, what: str) -> Hit | None:
    """Delete temporary files as they are made, until some were there."""
    is_over, deleted = until(6), 0
    while not is_over() and not deleted:
        for path in rig.temporary.rglob(pattern):
            try:
                path.unlink()
                deleted += 1
            except OSError:
                continue
        time.sleep(0.02)
    return Hit(f"{deleted} {what} deleted") if deleted else None


# -- the database ------------------------------------------------------------------------------------------------------


@contextmanager
def _database_stopped(rig: Rig) -> Iterator[None]:
    assert rig.server is not None
    rig.server.stop()
    try:
        yield
    finally:
        rig.server.start()


@contextmanager
def _database_frozen(rig: Rig) -> Iterator[None]:
    assert rig.server is not None
    with rig.server.frozen():
        yield


def _sessions_ended(rig: Rig) -> Hit | None:
    """End the sessions of the jobs as soon as they begin, for a second."""
    assert rig.server is not None
    is_over, ended = until(1), 0
    while not is_over():
        ended += len(
            rig.server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        )
        time.sleep(0.02)
    return Hit(f"{ended} sessions ended") if ended else None


@contextmanager
def _column_renamed(rig: Rig) -> Iterator[None]:
    assert rig.server is not None
    for job in rig.jobs:
        rig.server.execute(f"ALTER TABLE {job.target} RENAME COLUMN w TO other")
    try:
        yield
    finally:
        for job in rig.jobs:
            rig.server.execute(f"ALTER TABLE {job.target} RENAME COLUMN other TO w")


def _commit_lost(rig: Rig) -> Hit | None:
    assert rig.line is not None
    rig.line.lose_answer_to(b"COMMIT")
    is_over = until(8)
    while not rig.line.has_lost() and not is_over():
        time.sleep(0.05)
    return Hit("the answer to a COMMIT lost") if rig.line.has_lost() else None


# -- the line to a database or a store ---------------------------------------------------------------------------------


@contextmanager
def _cut(rig: Rig) -> Iterator[None]:
    assert rig.line is not None
    rig.line.close()
    try:
        yield
    finally:
        rig.line.open()


@contextmanager
def _slow(rig: Rig) -> Iterator[None]:
    assert rig.line is not None
    rig.line.slow(rig.drawn.uniform(0.02, 0.4))
    try:
        yield
    finally:
        rig.line.slow(0)


@contextmanager
def _failing(rig: Rig, answer: bytes) -> Iterator[None]:
    assert rig.line is not None
    rig.line.answer_instead(answer)
    try:
        yield
    finally:
        rig.line.answer_instead(None)


@contextmanager
def _breaking(rig: Rig) -> Iterator[None]:
    assert rig.line is not None
    rig.line.break_answers(rig.drawn.choice([0, 40, 400, 2_000]))
    try:
        yield
    finally:
        rig.line.break_answers(None)


# -- the broker --------------------------------------------------------------------------------------------------------


@contextmanager
def _broker_stopped(rig: Rig, *, at_once: bool) -> Iterator[None]:
    assert rig.broker is not None
    rig.broker.stop(at_once=at_once)
    try:
        yield
    finally:
        rig.broker.start()


@contextmanager
def _broker_frozen(rig: Rig) -> Iterator[None]:
    assert rig.broker is not None
    assert rig.broker.process is not None
    rig.broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        rig.broker.process.send_signal(signal.SIGCONT)


def _fault(
    name: str,
    rigs: tuple[str, ...],
    breaks: Breaks,
    least: float,
    most: float,
    *,
    times: int = 8,
    refuses: bool = True,
    says: str = "",
) -> Fault:
    injects = (
        _on_the_line if breaks in _LINES or (isinstance(breaks, partial) and breaks.func in _LINES) else _for_a_while
    )
    inject = partial(injects, breaks=breaks, what=name, least=least, most=most)
    return Fault(name, rigs, inject, times, refuses, says)


_LINES = (_cut, _slow, _failing, _breaking)
_DISK, _DATABASE, _STORE, _KAFKA = ("disk",), ("database",), ("store",), ("kafka",)
FAULTS = (
    _fault("disk of the checkpoint full", _DISK, partial(_full, name="disk"), 0.3, 2, says="is full|No space left"),
    _fault("disk of temporary files full", _DISK, partial(_full, name="tmp"), 0.3, 2),
    _fault("disk of the checkpoint read-only", _DISK, _read_only, 0.3, 2, says="is read-only|Read-only"),
    Fault("shuffle files deleted", _DISK, partial(_delete, pattern="shuffle_*", what="files of shuffles")),
    _fault("PostgreSQL killed and started", _DATABASE, _database_stopped, 0.1, 1.5, refuses=False),
    _fault("PostgreSQL stands still", _DATABASE, _database_frozen, 0.5, 2, refuses=False),
    Fault("sessions of PostgreSQL ended", _DATABASE, _sessions_ended, 8, refuses=False),
    _fault("connections to PostgreSQL cut", _DATABASE, _cut, 0.1, 2, times=12, refuses=False),
    Fault("answer to a COMMIT lost", _DATABASE, _commit_lost, refuses=False),
    _fault("column of a table renamed", _DATABASE, _column_renamed, 1, 2, times=4),
    _fault("connections to the object store cut", _STORE, _cut, 0.05, 1.5, times=20, refuses=False),
    _fault("object store slow", _STORE, _slow, 0.5, 2, times=12, refuses=False),
    _fault("object store answers 503", _STORE, partial(_failing, answer=_BUSY), 0.1, 1, times=20, refuses=False),
    _fault("object store answers 500", _STORE, partial(_failing, answer=_BROKEN), 0.1, 1, times=20, refuses=False),
    _fault("answers of the object store broken off", _STORE, _breaking, 0.1, 1, times=20, refuses=False),
    _fault(
        "Kafka stopped and started", _KAFKA, partial(_broker_stopped, at_once=False), 0.1, 3, times=2, refuses=False
    ),
    _fault("Kafka killed and started", _KAFKA, partial(_broker_stopped, at_once=True), 0.1, 3, times=2, refuses=False),
    _fault("Kafka stands still", _KAFKA, _broker_frozen, 0.5, 4, refuses=False),
)
