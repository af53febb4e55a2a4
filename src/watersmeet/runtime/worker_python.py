"""The Python command with which Spark starts processes on the driver's machine: ours, with the installed PySpark.

Spark puts an archive of PySpark's sources first on the module path of each process that it starts.  Python keeps no
compiled modules of an archive, so each such process compiles PySpark again, and every query starts with one: half a
second or more.  Here the archive moves to the end of the path if the package that it was made from is installed.

That process, which asks a stateful operator for its state, prints its progress at every start of a query; here that
goes to a file.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TextIO

from watersmeet.runtime.fork_server import SOCKET_VARIABLE, run_in_fork

#: The environment variable that names the file for what such a process prints.
LOG_VARIABLE = "WATERSMEET_PYTHON_LOG"
# Spark reads nothing from this module's standard output and copies it to its own standard error.
_PRINTS_PROGRESS = "pyspark.sql.streaming.transform_with_state_driver_worker"


def worker_python() -> str:
    """The command that replaces ``python`` in Spark's settings; plain Python if Watersmeet is not installed."""
    return shutil.which("watersmeet-python", path=sysconfig.get_path("scripts")) or sys.executable


def archives_last(path: Sequence[str]) -> list[str]:
    """A module path with the archives of an installed PySpark after all folders."""
    folders = {Path(entry) for entry in path if entry}

    def is_installed(entry: str) -> bool:
        # SITE/pyspark/python/lib/pyspark.zip, and Py4J's beside it
        home = Path(entry).parents[2:4]
        return entry.endswith(".zip") and len(home) == 2 and home[0].name == "pyspark" and home[1] in folders

    return sorted(path, key=is_installed)


def main() -> None:
    """Do what ``python`` does with the same arguments, in a fork of the fork server if there is one."""
    match sys.argv[1:]:
        case ["-m", module, *rest]:
            path = archives_last([str(Path.cwd()), *sys.path[1:]])
            with _standard_output(module) as output:
                code = run_in_fork(os.environ.get(SOCKET_VARIABLE, ""), module, rest, path, (0, output.fileno(), 2))
                if code is None:
                    sys.path[:] = path
                    sys.argv = [module, *rest]  # runpy sets the first
                    with redirect_stdout(output):
                        runpy.run_module(module, run_name="__main__", alter_sys=True)
            sys.exit(code)
        case other:
            os.execv(sys.executable, [sys.executable, *other])


def _standard_output(module: str) -> AbstractContextManager[TextIO]:
    """Where ``module`` prints: what it prints as progress goes to a log; errors go to standard error in any case."""
    return _open_log() if module == _PRINTS_PROGRESS else nullcontext(sys.stdout)


def _open_log() -> TextIO:
    try:
        return Path(os.environ[LOG_VARIABLE]).open("a", encoding="utf-8")
    except (KeyError, OSError):
        return Path(os.devnull).open("w", encoding="utf-8")
