"""What a process keeps of memory that it has freed, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def grown_and_left(script: str) -> tuple[int, int]:
    """Run a script that prints by how many MB it grew, and how many of these are left in the end."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    grown, left = map(int, done.stdout.split())
    return grown, left
