"""Parameters and inputs that several commands share."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from watersmeet.cli.live import View
from watersmeet.errors import ConfigError, did_you_mean

DEFAULT_WORKSPACE = ".watersmeet"

#: A folder on this machine, or the URI of one on a store.
WorkspaceName: TypeAlias = Path | str
Workspace = Annotated[
    str,
    typer.Option("--workspace", "-w", metavar="DIR", help="Folder or URI of streams, their data and checkpoints."),
]
Packages = Annotated[
    list[str] | None,
    typer.Option(
        "--packages", metavar="NAME", help="A Spark package: kafka, avro, protobuf, or GROUP:ARTIFACT:VERSION."
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs, such as local[2] or spark://HOST:PORT.")
]
ViewOption = Annotated[
    View,
    typer.Option("--view", help="How a SELECT displays rows: all changes, a table of current rows, or automatic."),
]

#: The file name that means standard input.
STANDARD_INPUT = "-"

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class UsageError(ConfigError):
    """Invalid arguments; exit code 2, as for any wrong usage."""


def read_script(name: str) -> str:
    """Return the SQL in a file, or on standard input for ``-``; ``ConfigError`` if it is not readable UTF-8 text."""
    source = "standard input" if name == STANDARD_INPUT else name
    try:
        text = _read(name).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        raise ConfigError(f"{source} is not UTF-8 text", hint="a script contains SQL statements")
    return text


def is_uri(name: str) -> bool:
    """Return whether a folder's name is a URI, and no path of this machine."""
    return _URI.match(name) is not None


def location(name: str) -> str:
    """Return a folder's name for Spark, whatever its working directory: a URI unchanged, a path made absolute."""
    return name if is_uri(name) else str(Path(name).absolute())


def _read(name: str) -> bytes:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise ConfigError("there is no standard input to read", hint="name a file")
        return sys.stdin.buffer.read()
    path = Path(name)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        nearby = [other.name for other in path.parent.glob("*") if other.suffix == path.suffix]
        raise ConfigError(f"there is no file {name}", hint=did_you_mean(path.name, nearby)) from None
    except OSError as error:
        raise ConfigError(f"{name or 'a file without a name'} cannot be read: {error.strerror}") from None


def named_place(workspace: str) -> WorkspaceName:
    """The place that ``--workspace`` names; a URI stays as it is, unless it is one of this machine."""
    if not is_uri(workspace):
        return Path(workspace)
    scheme, _, path = workspace.partition(":")
    return Path("/" + path.lstrip("/")) if scheme.lower() == "file" else workspace


def local_folder(workspace: WorkspaceName) -> Path:
    """The folder for what stays on this machine, such as logs: the workspace, or for one on a store the usual one."""
    return workspace if isinstance(workspace, Path) else Path(DEFAULT_WORKSPACE)


def require_local(workspace: WorkspaceName, what: str, hint: str) -> Path:
    """The workspace, if it is a folder of this machine; ``ConfigError`` for one on a store, which only Spark reads."""
    if isinstance(workspace, Path):
        return workspace
    raise ConfigError(f"{what} does not start Spark, which alone reads the workspace {workspace}", hint=hint)


def make_workspace(workspace: Path) -> None:
    """Create the workspace folder; ``ConfigError`` if it cannot be created or written to."""
    reason = _unfit(workspace)
    if reason is not None:
        raise ConfigError(f"{workspace} cannot be the workspace: {reason}", hint="name another folder with --workspace")


def _unfit(workspace: Path) -> str | None:
    try:
        workspace.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        return "it is a file, or inside one"
    except OSError as error:
        return str(error.strerror)
    return None if os.access(workspace, os.W_OK | os.X_OK) else "it is not writable"
