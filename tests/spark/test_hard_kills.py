"""Processes that start Spark themselves: what they leave in the folder for temporary files, and what they print."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.jobs import environment

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SCRIPT = """
import os, signal, sys
import watersmeet
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.query_mode import QueryMode

session = watersmeet.connect(master="local[1]", workspace=sys.argv[1])
session.sql('''
    CREATE STREAM a (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
    CREATE STREAM b (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
    INSERT INTO a VALUES (1, 100); INSERT INTO b VALUES (1, 101)
''')
def show(*_):
    print("rows", flush=True)
    if sys.argv[2] == "jvm":  # in the middle of a batch
        os.kill(session.spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        session.spark.range(1).count()
session.show = show
join = "SELECT a.id FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '5' SECONDS"
(started,) = session.run(join, QueryMode.CONTINUOUS)
sys.stdin.readline()
if sys.argv[2] == "jvm":
    try:
        started.query.wait(60)
    except WatersmeetError as error:
        print(error)
session.stop()
"""


def start(folder: Path, workspace: str, ending: str = "") -> subprocess.Popen[str]:
    """The script, up to its first rows; it ends at a line of input."""
    (folder / "tmp").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, workspace, ending],
        cwd=folder,
        env={**environment(), "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "rows\n", process.communicate("\n")
    return process


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "tmp").iterdir())


def wait_until_empty(folder: Path) -> None:
    """A JVM removes its folder after its Python process has ended."""
    give_up = time.monotonic() + 30
    while left(folder) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert left(folder) == []


@pytest.mark.slow
def test_a_later_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed = start(tmp_path, "killed")
    (abandoned,) = left(tmp_path)
    assert any((tmp_path / "tmp" / abandoned).glob("librocksdbjni*"))
    os.killpg(killed.pid, signal.SIGKILL)  # with its JVM, which would remove the folder
    killed.communicate()
    assert left(tmp_path) == [abandoned]

    later = start(tmp_path, "later", "jvm")
    (own,) = left(tmp_path)
    assert own != abandoned
    output, noise = later.communicate("\n", timeout=90)
    assert output.splitlines()[0] == f"query select_{output.split('_', 1)[1][:8]} ended: Spark's JVM has ended"
    assert "Traceback" not in noise
    assert "py4j" not in noise
    assert "Python worker" not in noise
    assert later.returncode == 0
    wait_until_empty(tmp_path)


@pytest.mark.slow
def test_a_run_that_ends_leaves_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, "workspace")
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "tmp").iterdir()]
    _, noise = process.communicate("\n", timeout=90)
    assert modes == [0]
    assert "Python worker" not in noise
    wait_until_empty(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp", "workspace"]
