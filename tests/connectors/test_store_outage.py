"""Files and a checkpoint in an object store that is away while a query runs, with a Spark of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs import environment

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(700)
def test_files_in_a_store_that_is_away(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.connectors.store_outage", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "(attempt 2, " in done.stdout
