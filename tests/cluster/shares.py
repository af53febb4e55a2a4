"""CPU shares: how much of a core a host may use, and what it has used (Linux's control groups, of either version)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000
_PATIENCE_SECONDS = 10.0


class CpuShare:
    """So much of a core for the programs that ``command`` starts, and for theirs.  The caller is root."""

    def __init__(self, name: str, cores: float) -> None:
        self.name = name
        own = f"watersmeet-{os.getpid()}-{name}"
        self._is_unified = (_ROOT / "cgroup.controllers").exists()
        controllers = ("",) if self._is_unified else ("cpu", "cpuacct")
        self._folders = list(dict.fromkeys((_ROOT / each).resolve() / own for each in controllers))
        quota = round(cores * _PERIOD)
        if self._is_unified:
            (_ROOT / "cgroup.subtree_control").write_text("+cpu")
        for folder in self._folders:
            folder.mkdir()
        if self._is_unified:
            (self._folders[0] / "cpu.max").write_text(f"{quota} {_PERIOD}")
        else:
            (self._folders[0] / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (self._folders[0] / "cpu.cfs_quota_us").write_text(str(quota))

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a program with this share."""
        joins = " && ".join(f"echo $$ > {folder}/cgroup.procs" for folder in self._folders)
        return ["sh", "-ec", f'{joins} && exec "$@"', "sh", *command]

    def seconds(self) -> float:
        """Return the CPU seconds used so far."""
        if self._is_unified:
            fields = dict(line.split() for line in (self._folders[0] / "cpu.stat").read_text().splitlines())
            return int(fields["usage_usec"]) / 1e6
        return int((self._folders[-1] / "cpuacct.usage").read_text()) / 1e9

    def close(self) -> None:
        """Take the share back once its programs have ended."""
        ends = time.monotonic() + _PATIENCE_SECONDS
        for folder in self._folders:
            while folder.exists() and time.monotonic() < ends:
                with suppress(OSError):  # a process that was killed may still be there
                    folder.rmdir()
                    break
                time.sleep(0.05)
