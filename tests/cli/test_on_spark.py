"""The commands with a real Spark, some in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest
from pyspark.sql import SparkSession

from tests.support.jobs import environment, run_job
from watersmeet.cli.explain import explain_script
from watersmeet.cli.live import View
from watersmeet.cli.views import show_of
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started
from watersmeet.session.session import Session
from watersmeet.sql.parse import parse

JOB = """
CREATE STREAM IF NOT EXISTS o (id INT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/o', event_time_unit = 's');
CREATE STREAM IF NOT EXISTS p (id INT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/p', event_time_unit = 's');
SELECT o.id, p.ts FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS EMIT FINAL;
"""
WATERSMEET = [sys.executable, "-c", "from watersmeet.cli.main import main; main()"]
PATIENCE_SECONDS = 150


def write(path: Path, rows: list[tuple[int, int]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"id": id, "ts": ts}) + "\n" for id, ts in rows))


def is_committed(folder: Path) -> bool:
    """Return whether Spark has committed every batch that it has started."""
    begun, done = (
        {path.name for path in folder.rglob(f"{log}/*") if path.name.isdigit()} for log in ("offsets", "commits")
    )
    return bool(begun) and begun == done


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_a_query_whose_chmod_is_ended_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "o" / "1.json", [(1, 5), (2, 6)])
    write(tmp_path / "p" / "1.json", [(1, 8)])
    (tmp_path / "job.sql").write_text(JOB.format(tmp_path))
    chmod, once = tmp_path / "bin" / "chmod", tmp_path / "once"
    chmod.parent.mkdir()
    end = f"mkdir {once} 2>/dev/null && kill -TERM $$"
    chmod.write_text(f'#!/bin/sh\ncase "$*" in */sources/*) {end};; esac\nexec {which("chmod")} "$@"\n')
    chmod.chmod(0o700)
    path = f"{chmod.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [*WATERSMEET, "run", "job.sql", "--bounded", "--master", "local[1]"],
        cwd=tmp_path,
        env={**environment(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert once.exists()
    assert sorted(ran.stdout.splitlines()) == ["+ 1, 8", "+ 2, NULL"]
    assert "a run has failed, and begins again where it last committed" in ran.stderr


@pytest.mark.processes
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
@pytest.mark.parametrize(
    ("number", "stop"),
    [
        pytest.param(signal.SIGINT, os.kill, id="Ctrl-C", marks=pytest.mark.slow),
        # Services are stopped like this: Spark's JVM receives the signal too, and ends by itself.
        pytest.param(signal.SIGTERM, os.killpg, id="SIGTERM to all", marks=pytest.mark.slow),
    ],
)
def test_a_stop_keeps_the_checkpoint_and_a_bounded_run_resumes(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    stop: Callable[[int, int], None],
) -> None:
    write(tmp_path / "o" / "1.json", [(1, 5), (2, 6)])
    write(tmp_path / "p" / "1.json", [(1, 8)])
    (tmp_path / "job.sql").write_text(JOB.format(tmp_path))
    command = [*WATERSMEET, "run", "job.sql", "--master", "local[1]"]

    rows = tmp_path / "rows.txt"
    with rows.open("w") as out, (tmp_path / "err.txt").open("w") as err:
        running = subprocess.Popen(
            command, cwd=tmp_path, stdout=out, stderr=err, env=environment(), start_new_session=True
        )
        try:
            give_up = time.monotonic() + PATIENCE_SECONDS
            # A batch that was printed but not committed would be printed again.
            while (
                not (rows.read_text() and is_committed(tmp_path))
                and running.poll() is None
                and time.monotonic() < give_up
            ):
                time.sleep(0.2)
            stop(running.pid, number)
            assert running.wait(60) == 128 + number
        finally:
            running.kill()
    output = (tmp_path / "err.txt").read_text()
    assert rows.read_text() == "+ 1, 8\n"
    assert output.splitlines()[0] == "starting Spark …"
    assert output.splitlines()[-1] == "resume with: watersmeet run job.sql --master 'local[1]'"
    assert "WARN" not in output
    assert "Traceback" not in output

    # The same as the command with --bounded, without starting another Spark.
    session = Session(spark, tmp_path / ".watersmeet")
    text = (tmp_path / "job.sql").read_text()
    session.show = show_of(parse(text)[-1], View.AUTO, in_place=False)
    run_job(session, text)
    assert capsys.readouterr().out == "+ 2, NULL\n"


@pytest.mark.slow
def test_a_changelog_adds_up_to_a_table_until_the_query_is_resumed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "o" / "1.json", [(1, 5), (2, 6)])
    write(tmp_path / "p" / "1.json", [])
    session = Session(spark, tmp_path / "workspace")
    create, _, select = JOB.format(tmp_path).replace("FINAL", "CHANGELOG").rpartition("SELECT")
    for _ in session.run(create):
        pass

    def start(mode: QueryMode) -> RunningQuery:
        (look,) = parse(f"SELECT {select}")
        session.show = show_of(look, View.TABLE, in_place=False)
        (started,) = session.run(look.source, mode)
        assert isinstance(started, Started)
        return started.query

    def printed(wanted: list[str]) -> None:
        output, give_up = "", time.monotonic() + PATIENCE_SECONDS
        while output.split() != wanted and time.monotonic() < give_up:
            time.sleep(0.1)
            output += "".join(char for char in capsys.readouterr().out if char != "─")
        assert output.split() == wanted

    query = start(QueryMode.CONTINUOUS)
    try:
        printed(["---", "id", "ts", "1", "NULL", "2", "NULL"])
        write(tmp_path / "p" / "2.json", [(1, 8)])
        printed(["---", "id", "ts", "1", "8", "2", "NULL"])
    finally:
        query.stop()

    write(tmp_path / "p" / "3.json", [(2, 7)])
    start(QueryMode.DRAIN).wait()
    output = capsys.readouterr()
    # A batch that was printed but not committed before the stop is printed again.
    again = {"+ 1, 8", "- 1, NULL"}
    assert set(output.out.splitlines()) - again == {"+ 2, 7", "- 2, NULL"}
    assert "the query resumes from its checkpoint" in output.err


@pytest.mark.slow
def test_explain_reads_statistics_from_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "o" / "1.json", [(1, 5), (2, 6)])
    write(tmp_path / "p" / "1.json", [(1, 8)])
    create, _, rest = JOB.format(tmp_path).rpartition("SELECT")
    query = f"SELECT {rest.strip().rstrip(';')}"
    job = f"""{create} CREATE STREAM IF NOT EXISTS s WITH (connector = 'blackhole');
      INSERT INTO s {query}; INSERT INTO s {query.replace("'10'", "'100'")}; CREATE STREAM d AS {query}; {query};"""
    session = Session(spark, tmp_path / "workspace")
    session.show = lambda *_: None
    run_job(session, job, QueryMode.DRAIN)
    plans = list(explain_script(job, session.workspace))
    assert [plan.count("3 rows held") for plan in plans] == [1, 1, 1, 1]
    assert plans[0] == session.explain(f"INSERT INTO s {query}")


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_an_archive_of_classes_is_recorded_and_a_damaged_one_is_ignored(tmp_path: Path) -> None:
    command = "import sys; sys.prefix = '.'; from watersmeet.cli.main import main; main()"

    def watersmeet(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", command, *words],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )

    write(tmp_path / "o" / "1.json", [(1, 5)])
    write(tmp_path / "p" / "1.json", [(1, 7)])
    (tmp_path / "job.sql").write_text(JOB.format(tmp_path))
    assert "Spark starts sooner from now on" in watersmeet("prepare").stderr
    (archive,) = (tmp_path / "share" / "watersmeet").iterdir()
    assert watersmeet("run", "job.sql", "--bounded", "-w", "with").stdout == "+ 1, 7\n"
    archive.chmod(0o600)
    archive.write_bytes(archive.read_bytes()[:5000] + b"garbage")
    assert watersmeet("run", "job.sql", "--bounded", "-w", "damaged").stdout == "+ 1, 7\n"
