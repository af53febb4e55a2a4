"""Memory that a worker frees goes back to the system."""

from __future__ import annotations

import sys

import pytest

from tests.support.freed import grown_and_left

FREES = """
import ctypes
import re
from pathlib import Path

import pyarrow as pa

from watersmeet.state.freed_memory import give_back_what_is_freed

give_back_what_is_freed()

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) // 1024

before = resident()
held = []
for _ in range(400):  # blocks of 256 KiB, as DuckDB takes them
    block = pa.allocate_buffer(256 * 1024)
    ctypes.memset(block.address, 1, block.size)
    held.append(block)
del block
grown = resident() - before
del held[::2]
print(grown, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the resident size from /proc")
def test_freed_blocks_are_given_back_though_others_between_them_stay() -> None:
    grown, left = grown_and_left(FREES)
    assert grown >= 95
    assert left < 0.6 * grown
