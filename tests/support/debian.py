"""Servers for tests out of Debian's packages, unpacked into a folder where the system has none of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

DOWNLOAD_SECONDS = 120.0
_UNPRIVILEGED = ("postgres", "nobody")


class ServerNotFoundError(Exception):
    """The system has no such server, and none can be downloaded."""


def unpacked(name: str, packages: Sequence[str], wanted: str) -> list[Path]:
    """What matches ``wanted`` in packages that are unpacked; they stay for the next run.

    The folder is beside the system's other temporary ones.  Raises ``ServerNotFoundError``.
    """
    folder = Path(tempfile.gettempdir()) / f"watersmeet-tests-{name}-{os.geteuid()}"
    folder.mkdir(exist_ok=True, mode=0o755)  # another user than this one runs the server
    if folder.stat().st_uid != os.geteuid():
        raise ServerNotFoundError(f"{folder} belongs to another user")
    if not (found := list(folder.glob(wanted))):
        try:
            output_of("apt-get", "download", *packages, folder=folder)
            for package in folder.glob("*.deb"):
                output_of("dpkg", "-x", package.name, ".", folder=folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerNotFoundError(
                f"no server {name} is installed, nor can one be downloaded from Debian: {error}"
            ) from None
        found = list(folder.glob(wanted))
    return found


def output_of(*command: str, folder: Path) -> str:
    """What a command prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=True)
    return done.stdout


def with_libraries(*folders: Path) -> dict[str, str]:
    """The environment of a program that was unpacked, and has its libraries in folders such as ``usr/lib``."""
    libraries = [str(path) for folder in folders for path in folder.glob("*-linux-gnu")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else dict(os.environ)


def unprivileged_user() -> int | None:
    """The user that runs servers which refuse to run as root; None: this one."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise ServerNotFoundError("root cannot run database servers, and there is no user postgres or nobody")


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
