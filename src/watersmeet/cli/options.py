"""Options and inputs that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.errors import ConfigError, did_you_mean

DEFAULT_WORKSPACE = Path(".watersmeet")

Workspace = Annotated[
    Path,
    typer.Option("--workspace", "-w", metavar="DIR", help="Folder of the streams, their data and the checkpoints."),
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

#: The name that stands for standard input.
STANDARD_INPUT = "-"


def read_script(name: str) -> str:
    """The SQL in a file, or on standard input for ``-``; ``ConfigError`` where it cannot be read as UTF-8 text."""
    if name == STANDARD_INPUT:
        return sys.stdin.read()
    path = Path(name)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        nearby = [other.name for other in path.parent.glob("*") if other.suffix == path.suffix]
        raise ConfigError(f"there is no file {name}", hint=did_you_mean(path.name, nearby)) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not text in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
