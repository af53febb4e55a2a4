"""The Python that Spark starts its processes with on the driver's machine: ours, with PySpark as it is installed.

Spark puts an archive of PySpark's sources first on the path of each process that it starts.  Python keeps no compiled
modules of an archive, so each compiles PySpark anew, and there is one such process at the start of every query: half a
second and more.  Here the archive goes to the end of the path where the package that it was made of is installed.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


def worker_python() -> str:
    """The command to give to Spark in the place of ``python``; plain Python where Watersmeet was not installed."""
    return shutil.which("watersmeet-python", path=sysconfig.get_path("scripts")) or sys.executable


def archives_last(path: Sequence[str]) -> list[str]:
    """A module path with the archives of an installed PySpark behind all folders."""
    folders = {Path(entry) for entry in path if entry}

    def is_installed(entry: str) -> bool:
        # SITE/pyspark/python/lib/pyspark.zip, and Py4J's beside it
        home = Path(entry).parents[2:4]
        return entry.endswith(".zip") and len(home) == 2 and home[0].name == "pyspark" and home[1] in folders

    return sorted(path, key=is_installed)


def main() -> None:
    """Do what ``python`` does with the same arguments."""
    match sys.argv[1:]:
        case ["-m", module, *rest]:
            sys.path[:] = archives_last([str(Path.cwd()), *sys.path[1:]])
            sys.argv = [module, *rest]  # runpy sets the first
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case other:
            os.execv(sys.executable, [sys.executable, *other])
