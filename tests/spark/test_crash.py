"""A job that is killed again and again, at different moments, writes what it would have written undisturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import batch_answer, environment, json_lines, json_rows, write_lines

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

RUN = "from watersmeet.cli.main import main; main()"
NAMES = ("id", "ts")
FILES = 6
JOB = """
CREATE STREAM IF NOT EXISTS o (id INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS)
  WITH (connector = 'files', path = '{0}/o', event_time_unit = 's', max_files_per_trigger = '1');
CREATE STREAM IF NOT EXISTS p (id INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS)
  WITH (connector = 'files', path = '{0}/p', event_time_unit = 's', max_files_per_trigger = '1');
CREATE STREAM IF NOT EXISTS sink WITH (connector = 'files', path = '{0}/out');
INSERT INTO sink SELECT o.id, o.ts, p.id AS pid, p.ts AS pts
FROM o FULL JOIN p ON o.id = p.id WITHIN INTERVAL '8' SECONDS EMIT FINAL;
"""
ANSWER = "SELECT o.id, o.ts, p.id, p.ts FROM o FULL JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= 8"
PATIENCE_SECONDS = 250.0


def batches_committed(folder: Path) -> int:
    commits = (folder / ".watersmeet").glob("queries/*/spark/commits/*")
    return sum(path.name.isdigit() for path in commits)


def end_was_declared(folder: Path) -> bool:
    return any((folder / ".watersmeet").glob("queries/*/control/*.json"))


#: When to kill: in the midst of the data (after a moment in which the next batch is under way), and at its end.  Each
#: takes a start of Spark.
MOMENTS: tuple[tuple[Callable[[Path], bool], float], ...] = (
    (lambda folder: batches_committed(folder) >= 1, 0.0),
    (lambda folder: batches_committed(folder) >= 4, 0.4),
    (end_was_declared, 0.8),
)


def rows_of(seed: int) -> list[tuple[object, ...]]:
    """Rows out of order by less than the declared delay."""
    chance = random.Random(seed)
    return [(chance.randrange(8), i + chance.randrange(5)) for i in range(20 * FILES)]


def start(folder: Path) -> subprocess.Popen[bytes]:
    """The job in a process group of its own."""
    command = [sys.executable, "-c", RUN, "run", "job.sql", "--bounded", "--master", "local[2]"]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment(), start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill Python and its JVM at one blow; the workers end when their JVM is gone."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        process.poll()
        time.sleep(0.05)
    raise AssertionError("the process group does not die")


@pytest.mark.slow
def test_output_is_exact_after_kills(tmp_path: Path) -> None:
    streams = {name: rows_of(seed) for seed, name in enumerate("op")}
    for name, rows in streams.items():
        for number in range(FILES):
            part = rows[20 * number : 20 * (number + 1)]
            write_lines(tmp_path / name / f"{number}.json", json_lines(part, NAMES), age=number)
    (tmp_path / "job.sql").write_text(JOB.format(tmp_path))

    killed = 0
    for is_time, delay in MOMENTS:
        process = start(tmp_path)
        try:
            give_up = time.monotonic() + PATIENCE_SECONDS
            while process.poll() is None and not is_time(tmp_path) and time.monotonic() < give_up:
                time.sleep(0.02)
            time.sleep(delay)
            killed += process.poll() is None
        finally:
            kill(process)
    assert killed >= max(1, len(MOMENTS) - 1), (tmp_path / "log.txt").read_text()

    last = start(tmp_path)
    try:
        code = last.wait(PATIENCE_SECONDS)
    finally:
        kill(last)
    log = (tmp_path / "log.txt").read_text()
    # the last kill may have come when everything was done: then the checkpoint is sealed already
    assert code == 0 or "is sealed" in log, log
    assert json_rows(tmp_path / "out") == batch_answer(ANSWER, o=(NAMES, streams["o"]), p=(NAMES, streams["p"]))
