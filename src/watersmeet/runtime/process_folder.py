"""The folder for temporary files of this process, of its JVM and of its Python workers.

A process that is killed cannot delete its files, so the next one does.  A process holds a lock on its folder
(``flock`` on the folder itself), and its JVM inherits that lock: a folder whose lock is free has no user left.  Unlike
process ids, locks also work for containers that share a folder for temporary files, and are never used twice.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path

#: The longest path of a Unix socket, in bytes; Linux has 107, macOS and the BSDs 103.
LONGEST_SOCKET_PATH = 103
#: How long a JVM that accepts no connections may take to end.
_LAST_SECONDS = 10.0
_PREFIX = "watersmeet-run-"
_NAME = re.compile(rf"{_PREFIX}\d+-\w+")


@dataclass(slots=True)
class ProcessFolder:
    """A folder, the descriptor that holds its lock, and the JVM that uses it, which removes it when it ends.

    ``port`` is the one on which the JVM listens.
    """

    path: Path
    lock: int
    jvm: subprocess.Popen[bytes] | None = None
    port: int | None = None

    def is_left_to_jvm(self) -> bool:
        """Whether a JVM is alive that will remove the folder; waits for one that was killed and has not ended yet."""
        if self.jvm is None or self.jvm.poll() is not None:
            return False
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port or 0), timeout=1).close()
            return True
        with suppress(subprocess.TimeoutExpired):
            self.jvm.wait(_LAST_SECONDS)
        return self.jvm.poll() is None


@cache
def process_folder() -> ProcessFolder:
    """The folder of this process, readable for its owner only; it is removed when the process ends."""
    parent = Path(tempfile.gettempdir())
    remove_abandoned(parent)
    made = locked_folder(parent)
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner and not made.is_left_to_jvm():  # not in a fork of this process
            shutil.rmtree(made.path, ignore_errors=True)

    atexit.register(remove)
    return made


def new_folder() -> str:
    """Make a folder for one run of a query, in which its workers leave data for each other."""
    return tempfile.mkdtemp(prefix="query-", dir=process_folder().path)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose process, and its JVM, have ended."""
    for folder in parent.glob(f"{_PREFIX}*"):
        if _NAME.fullmatch(folder.name) is None:
            continue
        with suppress(OSError):  # in use, gone already, or no lock can be had here
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    flock(lock, LOCK_EX | LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def locked_folder(parent: Path) -> ProcessFolder:
    """Make a folder that is this process's while its lock is held, and then anybody's to remove."""
    # once more if another process took it for abandoned before it was locked
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # where the file system has no locks nobody takes the folder either
            flock(lock, LOCK_EX)
        if _is_still(path, lock):
            return ProcessFolder(path, lock)
        os.close(lock)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_ino == os.fstat(descriptor).st_ino
