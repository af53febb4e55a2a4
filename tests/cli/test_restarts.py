"""``run --restart-on-failure``: after which failures a job is started again, and how that is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.jobs import environment
from watersmeet.cli import restarts, supervisor
from watersmeet.cli.main import app
from watersmeet.cli.parameters import UsageError
from watersmeet.cli.restarts import Ending, Restarts, require_repeatable
from watersmeet.cli.supervisor import supervise
from watersmeet.sql.parse import parse

OUTAGE = Ending(1, 5, "SinkOutageError", "the database is down", 0)
REFUSED = Ending(1, 5, "ConnectorError", "batch 7: a check constraint is violated", 3)
PATIENCE_SECONDS = 120


@pytest.mark.parametrize(
    "kind",
    [
        *("SqlSyntaxError", "BindError", "PlanError", "UnsupportedError", "ConfigError", "CatalogError"),
        *("CheckpointError", "LimitError"),
    ],
)
def test_what_would_come_again_is_not_tried_again(kind: str) -> None:
    policy, ending = Restarts(10), Ending(1, 5, kind, "no", 9)
    assert policy.pause_after(ending) is None
    assert policy.why_not(ending) == "this failure would come again"


@pytest.mark.parametrize(
    "ending",
    [OUTAGE, Ending(1, 5, "LostProcessError", "a worker died"), Ending(-9, 5), Ending(134, 5)],
    ids=["an outage", "a lost process", "killed", "aborted"],
)
def test_what_may_pass_is_tried_again_so_many_times_in_a_row(ending: Ending) -> None:
    policy = Restarts(4)
    for most in (2, 4, 8, 16):
        pause = policy.pause_after(ending)
        assert pause is not None
        assert most / 2 <= pause <= most
    assert policy.pause_after(ending) is None
    assert policy.why_not(ending) == "it was started again 4 times in a row"


def test_wrong_usage_is_not_tried_again() -> None:
    assert Restarts(3).pause_after(Ending(2, 1)) is None


def test_other_failures_are_tried_again_until_they_come_at_the_same_batch() -> None:
    policy = Restarts(10)
    assert policy.pause_after(REFUSED)
    assert policy.pause_after(Ending(1, 5, "ConnectorError", "batch 8: a check constraint is violated", 0))
    again = Ending(1, 5, "ConnectorError", "batch 8: a check constraint is violated", 1)
    assert policy.pause_after(again), "it came further meanwhile"
    again = Ending(1, 5, "ConnectorError", "batch 8: a check constraint is violated", 0)
    assert policy.pause_after(again) is None
    assert policy.why_not(again) == "the same failure has come again, at the same batch"


def test_a_healthy_run_makes_restarts_before_it_forgotten() -> None:
    policy = Restarts(2)
    assert policy.pause_after(OUTAGE)
    assert policy.pause_after(OUTAGE)
    pause = policy.pause_after(Ending(1, restarts.HEALTHY_SECONDS, "SinkOutageError", "the database is down", 90))
    assert pause is not None
    assert pause <= 2
    assert policy.in_a_row == 1


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "INSERT INTO s VALUES (1)",
            "INSERT of rows does not go with --restart-on-failure: each run would insert them",
        ),
        (
            "CREATE STREAM s (i INT)",
            "CREATE does not go with --restart-on-failure: what it creates exists in the second",
        ),
        ("SELECT 1 AS i FROM s; DROP STREAM s", "DROP does not go with --restart-on-failure"),
        ("INSERT INTO t SELECT i FROM table(s)", "INSERT of rows does not go with"),
    ],
)
def test_a_script_that_cannot_run_again(script: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        require_repeatable(parse(script), bounded=False)
    assert said in str(raised.value)
    assert "(line 1" in str(raised.value)


def test_a_script_that_can() -> None:
    script = """CREATE STREAM IF NOT EXISTS s (i INT); CREATE STREAM IF NOT EXISTS t AS SELECT i FROM s;
    INSERT INTO u SELECT i FROM t; SHOW STREAMS; SELECT i FROM table(s); EXPLAIN SELECT i FROM s"""
    require_repeatable(parse(script), bounded=False)
    with pytest.raises(UsageError, match="--bounded takes a script of one query, but this one has 2"):
        require_repeatable(parse(script), bounded=True)
    require_repeatable(parse("SELECT i FROM s"), bounded=True)


# -- processes ---------------------------------------------------------------------------------------------------------

_JOB = """
import json, os, pathlib, signal, sys, time
from watersmeet.cli.interrupt import interruptible
from watersmeet.cli.supervised import reporting, watch
from watersmeet import errors
log = pathlib.Path(sys.argv[1])
with log.open("a") as out:
    out.write(f"{sys.argv[2:]} {sys.stdin.read()!r}\\n")
number = len(log.read_text().splitlines())
kind = json.loads(os.environ["KINDS"])[number - 1]
with reporting([]), interruptible() as interrupt:
    if kind == "KILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "WAIT":
        log.with_name("waits").touch()
        while not interrupt.asked:
            time.sleep(0.01)
        time.sleep(0.5)  # queries take a while to stop
        log.with_name("stopped").touch()
        sys.exit(interrupt.exit_code)
    if kind:
        sys.exit(1) if not hasattr(errors, kind) else None
        try:
            with reporting([]):
                raise getattr(errors, kind)("no\\nmore")
        except errors.WatersmeetError:
            sys.exit(1)
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jobs that end as ``KINDS`` says, one after the other; what they were given is in the file."""
    monkeypatch.setattr(supervisor, "_MAIN", _JOB)
    monkeypatch.setattr(restarts, "_FIRST_PAUSE", 0.01)
    return tmp_path / "log"


def run(jobs: Path, monkeypatch: pytest.MonkeyPatch, *kinds: str, script: str | None = None, most: int = 3) -> int:
    monkeypatch.setenv("KINDS", json.dumps(kinds))
    return supervise([str(jobs), "a b"], script, most)


def test_a_job_is_started_again_until_it_succeeds(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(jobs, monkeypatch, "OutageError", "KILL", "", script="SELECT 'ä'") == 0
    assert jobs.read_text().splitlines() == ["""['a b'] "SELECT 'ä'\""""] * 3
    first, second = capsys.readouterr().err.splitlines()
    assert first.partition(" ")[2] == "restart 1 of 3 in a row, in 0 s, because the job has failed: no"
    assert second.endswith("failed: its process was ended by signal 9")


def test_a_failure_that_stays_ends_it_with_its_code(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(jobs, monkeypatch, "OutageError", "CheckpointError", "") == 1
    assert len(jobs.read_text().splitlines()) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(" not started again: this failure would come again")
    jobs.unlink()
    assert run(jobs, monkeypatch, *["KILL"] * 9, most=2) == 137
    assert len(jobs.read_text().splitlines()) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_job_and_no_other_follows(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    wait = supervisor._wait

    def signalled(job: subprocess.Popen[bytes], interrupt: object) -> int:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not jobs.with_name("waits").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if number is signal.SIGTERM:
            job.send_signal(number)  # as a service's: it reaches all processes
            time.sleep(0.2)  # two signals that come together are one
        os.kill(os.getpid(), number)
        return wait(job, interrupt)  # type: ignore[arg-type]

    monkeypatch.setattr(supervisor, "_wait", signalled)
    assert run(jobs, monkeypatch, "WAIT", "WAIT") == 128 + number
    assert jobs.with_name("stopped").exists()
    assert len(jobs.read_text().splitlines()) == 1


def test_a_job_ends_with_the_process_that_watches_over_it(jobs: Path) -> None:
    code = f"from watersmeet.cli import supervisor; supervisor._MAIN = {_JOB!r}; "
    code += f"supervisor.supervise([{str(jobs)!r}], None, 3)"
    watching = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "KINDS": '["WAIT"]'})
    try:
        _wait_for(jobs.with_name("waits"))
    finally:
        watching.kill()
        watching.wait(PATIENCE_SECONDS)
    _wait_for(jobs.with_name("stopped"))


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def test_wrong_scripts_are_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text("CREATE STREAM s (i INT)")
    result = CliRunner().invoke(app, ["run", str(path), "--restart-on-failure"])
    assert result.exit_code == 2
    assert "hint: write CREATE … IF NOT EXISTS" in result.stderr


JOB = """
CREATE STREAM IF NOT EXISTS o (id INT) WITH (connector = 'files', path = '{0}/o', max_files_per_trigger = '1');
CREATE STREAM IF NOT EXISTS sink WITH (connector = 'files', path = '{0}/sink');
INSERT INTO sink SELECT id FROM o;
"""


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_a_job_whose_jvm_is_killed_goes_on_in_a_new_one(tmp_path: Path) -> None:
    def rows() -> list[int]:
        lines = [line for file in (tmp_path / "sink").glob("*.json") for line in file.read_text().splitlines()]
        return sorted(json.loads(line)["id"] for line in lines)

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(rows()) < count:
            assert time.monotonic() < deadline, (tmp_path / "err.txt").read_text()
            time.sleep(0.1)

    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "1.json").write_text('{"id": 1}\n')
    (tmp_path / "job.sql").write_text(JOB.format(tmp_path))
    command = [sys.executable, "-c", "from watersmeet.cli.main import main; main()", "run", "job.sql"]
    with (tmp_path / "err.txt").open("w") as err:
        running = subprocess.Popen(
            [*command, "--restart-on-failure", "--master", "local[1]"], cwd=tmp_path, stderr=err, env=environment()
        )
        try:
            wait_for(1)
            job = int(Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text())
            listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)
            started = [line.split() for line in listed.stdout.splitlines()]
            (jvm,) = [int(pid) for pid, parent, name in started if int(parent) == job and name == "java"]
            os.kill(jvm, signal.SIGKILL)
            (tmp_path / "o" / "2.json").write_text('{"id": 2}\n')
            wait_for(2)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE_SECONDS) == 143
        finally:
            running.kill()
            running.wait(PATIENCE_SECONDS)
    said = (tmp_path / "err.txt").read_text()
    assert "restart 1 of 10 in a row, in " in said
    assert "resume with: watersmeet run job.sql --master 'local[1]' --restart-on-failure" in said
    assert rows() == [1, 2]
