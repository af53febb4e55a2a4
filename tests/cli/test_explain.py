from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.cli.explain import explain_script
from watersmeet.cli.main import app

RUNNER = CliRunner()
STREAMS = """
CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""
JOIN = "SELECT o.id, o.ts, p.ts AS paid FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_script_is_explained_without_a_trace() -> None:
    Path("job.sql").write_text(f"{STREAMS}{JOIN};")
    result = RUNNER.invoke(app, ["explain", "job.sql"])
    assert result.exit_code == 0, result.stderr
    assert "window -10 s <= p.ts - o.ts <= 10 s" in result.stdout
    assert not Path(".watersmeet").exists()


def test_statements_on_the_command_line() -> None:
    result = RUNNER.invoke(app, ["explain", "-e", f"{STREAMS}INSERT INTO s {JOIN}; EXPLAIN {JOIN} EMIT CHANGELOG"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("window -10 s") == 2
    assert "EMIT CHANGELOG" in result.stdout


def test_a_query_over_a_stream_that_the_script_derives() -> None:
    plans = list(
        explain_script(f"{STREAMS}CREATE STREAM j AS {JOIN}; SELECT j.id FROM j JOIN o ON j.id = o.id;", Path("w"))
    )
    assert len(plans) == 2
    assert "source j (j, embedded)" in plans[1]


def test_an_error_points_into_the_script() -> None:
    result = RUNNER.invoke(app, ["explain", "-e", f"{STREAMS}SELECT o.idd FROM o"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "line 4, column 8" in result.stderr
    assert "id" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "explain takes either a file or -e 'SQL'"),
        (["job.sql", "-e", "SELECT 1"], "explain takes either a file or -e 'SQL'"),
        (["-e", "SHOW STREAMS"], "there is no query here"),
    ],
)
def test_what_cannot_be_explained(arguments: list[str], message: str) -> None:
    result = RUNNER.invoke(app, ["explain", *arguments])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, message)
