"""`watersmeet rescale` killed at one moment after the other: the checkpoint is the old one or the new one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.test_crash import kill, rows_of
from tests.support.jobs import batch_answer, environment, json_lines, json_rows, write_lines

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1_800)]

COMMAND = "from watersmeet.cli.main import main; main()"
NAMES = ("id", "ts")
JOB = """
CREATE STREAM IF NOT EXISTS o (id INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS)
  WITH (connector = 'files', path = '{0}/o', event_time_unit = 's');
CREATE STREAM IF NOT EXISTS p (id INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS)
  WITH (connector = 'files', path = '{0}/p', event_time_unit = 's');
CREATE STREAM IF NOT EXISTS sink WITH (connector = 'files', path = '{0}/out');
INSERT INTO sink SELECT o.id, o.ts, p.id AS pid, p.ts AS pts
FROM o FULL JOIN p ON o.id = p.id WITHIN INTERVAL '8' SECONDS EMIT FINAL;
"""
ANSWER = "SELECT o.id, o.ts, p.id, p.ts FROM o FULL JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= 8"
CHECKPOINT = ".watersmeet/queries/into_sink_from_o_p"
#: What the command writes, in that order.
MOMENTS = ("rescaled-1/*/*", "spark-1/metadata", "spark-1/offsets/0", "spark-1/commits/0")
_PATIENCE_SECONDS = 250.0


def command(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", COMMAND, *arguments, "--master", "local[2]"]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, env=environment(), start_new_session=True)


def end(process: subprocess.Popen[bytes], folder: Path) -> None:
    assert process.wait(_PATIENCE_SECONDS) == 0, (folder / "log.txt").read_text()[-2000:]


def kill_once(process: subprocess.Popen[bytes], has_come: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not has_come():
        assert process.poll() is None, (folder / "log.txt").read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    kill(process)


def version(folder: Path) -> int:
    found: int = json.loads((folder / CHECKPOINT / "plan.json").read_text())["version"]
    return found


def test_a_change_that_is_killed_is_done_or_not(tmp_path: Path) -> None:
    left, right = rows_of(5), rows_of(6)
    half = len(left) // 2
    (tmp_path / "job.sql").write_text(JOB.format(tmp_path))

    def feed(number: int) -> None:
        part = slice(number * half, (number + 1) * half)
        write_lines(tmp_path / "o" / f"{number}.json", json_lines(left[part], NAMES), age=number)
        write_lines(tmp_path / "p" / f"{number}.json", json_lines(right[part], NAMES), age=number)

    feed(0)
    end(command(tmp_path, "run", "job.sql", "--drain"), tmp_path)
    for moment in MOMENTS:
        # what the kill before left there is deleted first
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / CHECKPOINT).glob(moment)}

        def has_come(moment: str = moment, before: dict[Path, int] = before) -> bool:
            found = ((path, path.stat().st_mtime_ns) for path in (tmp_path / CHECKPOINT).glob(moment) if path.exists())
            return any(before.get(path) != time for path, time in found)

        kill_once(command(tmp_path, "rescale", "job.sql", "--buckets", "7"), has_come, tmp_path)
        assert version(tmp_path) == 2, moment
    kill_once(command(tmp_path, "rescale", "job.sql", "--buckets", "7"), lambda: version(tmp_path) == 3, tmp_path)
    feed(1)
    end(command(tmp_path, "run", "job.sql", "--bounded"), tmp_path)
    assert json_rows(tmp_path / "out") == batch_answer(ANSWER, o=(NAMES, left), p=(NAMES, right))
    assert sorted(path.name for path in (tmp_path / CHECKPOINT).glob("spark*")) == ["spark-1"]
