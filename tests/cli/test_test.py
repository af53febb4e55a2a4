from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.cli.main import app
from watersmeet.cli.test import ways_to_run
from watersmeet.testing.harness import Harness
from watersmeet.testing.notation import parse_cases

RUNNER = CliRunner()
CASE = """\
=== pairs within ten seconds
CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT o.id, p.ts FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS EMIT FINAL;

>>> o
1, 5
2, 6
>>> p
1, 8
<<<
+ 1, 8

>>> end
<<<
+ 2, {pad}
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_cases_that_pass(tmp_path: Path) -> None:
    path = write(tmp_path, "a.wmt", CASE.format(pad="NULL"))
    result = RUNNER.invoke(app, ["test", path])
    assert result.exit_code == 0, result.stdout
    first, last = result.stdout.splitlines()
    assert first == f"ok   {path}:1: pairs within ten seconds"
    assert re.fullmatch(r"1 passed, 0 failed in \d+\.\d s", last)


def test_a_failing_case_has_its_line_and_differences(tmp_path: Path) -> None:
    good = write(tmp_path, "a.wmt", CASE.format(pad="NULL"))
    bad = write(tmp_path, "b.wmt", CASE.format(pad="7"))
    result = RUNNER.invoke(app, ["test", bad, good])
    assert result.exit_code == 1
    assert f"FAIL {bad}:15: pairs within ten seconds" in result.stdout
    assert "+ 2, 7" in result.stdout
    assert "+ 2, NULL" in result.stdout
    assert "1 passed, 1 failed" in result.stdout.splitlines()[-1]


def test_a_folder_means_its_files(tmp_path: Path) -> None:
    write(tmp_path, "a.wmt", CASE.format(pad="NULL"))
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper", "b.wmt", CASE.format(pad="NULL"))
    assert "2 passed" in RUNNER.invoke(app, ["test", str(tmp_path)]).stdout


def test_all_variants(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["test", "--variants", write(tmp_path, "a.wmt", CASE.format(pad="NULL"))])
    assert result.exit_code == 0, result.stdout
    assert "5 passed" in result.stdout
    assert "pairs within ten seconds (row by row, restarts)" in result.stdout


def test_restarts(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["test", "--restart", write(tmp_path, "a.wmt", CASE.format(pad="NULL"))])
    assert result.exit_code == 0, result.stdout
    assert "pairs within ten seconds (restarts)" in result.stdout


def test_ways_to_run() -> None:
    (case,) = parse_cases(CASE.format(pad="NULL"))
    assert [name for name, _ in ways_to_run(case, False, False)] == [""]
    assert [name for name, _ in ways_to_run(case, True, False)] == ["restarts"]
    assert len(list(ways_to_run(case, False, True))) == 5
    assert [name for name, _ in ways_to_run(case, True, True)] == ["restarts", "row by row, restarts"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file"),
        ("no title\n", ":1"),
    ],
)
def test_files_that_are_not_tests(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "x.wmt"
    if text is not None:
        path.write_text(text)
    result = RUNNER.invoke(app, ["test", str(path)])
    assert result.exit_code == 1
    assert message in result.stderr
    assert str(path) in result.stderr


@pytest.mark.parametrize("text", ["", "-- nothing\n"])
def test_a_file_without_cases(tmp_path: Path, text: str) -> None:
    result = RUNNER.invoke(app, ["test", write(tmp_path, "a.wmt", text)])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == f"{tmp_path}/a.wmt:1: there is no case here"


def test_a_folder_without_cases(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["test", str(tmp_path)])
    assert result.stderr == f"the folder {tmp_path} has no .wmt files\n"


def test_a_crash_fails_only_its_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(Harness, "step", broken)
    result = RUNNER.invoke(app, ["test", write(tmp_path, "a.wmt", CASE.format(pad="NULL"))])
    assert result.exit_code == 1
    assert "crashed: ZeroDivisionError: by nought" in result.stdout
    assert ", in broken\n" in result.stdout  # where it was raised
    assert "0 passed, 1 failed" in result.stdout
