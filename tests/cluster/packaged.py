"""The environment of this project as an archive, as docs/cluster.md says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cluster.hosts import repository


def packed_environment(folder: Path) -> Path:
    """Install this project into an environment of its own, and return an archive of it."""
    uv = [str(Path(sys.executable).with_name("uv"))]
    python, archive = folder / "bin" / "python", folder.with_suffix(".tar.gz")
    pins = str(repository() / "requirements.lock")
    for command in (
        [*uv, "venv", "--python", sys.executable, str(folder)],
        [*uv, "pip", "install", "--python", str(python), "--constraint", pins, str(repository()), "venv-pack"],
        [str(folder / "bin" / "venv-pack"), "-p", str(folder), "-o", str(archive), "--exclude", "*/pyspark/*"],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return archive
