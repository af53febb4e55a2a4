from __future__ import annotations

import errno
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from watersmeet.cli.main import app

RUNNER = CliRunner()


def test_version_of_the_package() -> None:
    result = RUNNER.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"watersmeet {version('watersmeet')}\n"


def test_help_names_every_command() -> None:
    result = RUNNER.invoke(app, ["--help"])
    for command in ("run", "sql", "explain", "test", "demo"):
        assert f" {command} " in result.stdout


def test_an_unknown_command_is_wrong_usage() -> None:
    assert RUNNER.invoke(app, ["jion"]).exit_code == 2


def test_an_error_is_plain_text_on_standard_error() -> None:
    result = RUNNER.invoke(app, ["run", "nowhere.sql"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[0] == "there is no file nowhere.sql"
    assert "Traceback" not in result.stderr


def test_ctrl_c_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("watersmeet.cli.run.read_script", interrupted)
    result = RUNNER.invoke(app, ["run", "job.sql"])
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device\n"),
        (PermissionError(errno.EACCES, "Permission denied", "results"), "results: Permission denied\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
    ],
)
def test_system_errors_are_printed_without_a_stack_trace(
    monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    def refused(_: str) -> str:
        raise error

    monkeypatch.setattr("watersmeet.cli.run.read_script", refused)
    monkeypatch.setattr("sys.stdout", sys.stdout)  # typer replaces the streams after a broken pipe
    monkeypatch.setattr("sys.stderr", sys.stderr)
    result = RUNNER.invoke(app, ["run", "job.sql"])
    assert (result.exit_code, result.stderr) == (1, message)
    assert isinstance(result.exception, SystemExit)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("watersmeet.cli.main", ("pyspark", "duckdb", "pyarrow", "sqlglot", "prompt_toolkit")),
        ("watersmeet.sql.parse", ("pyspark", "duckdb", "pyarrow", "pydantic")),
        ("watersmeet.testing.runner", ("pyspark", "pandas")),
        ("watersmeet.plan.explain", ("pyspark", "pandas")),
    ],
)
def test_slow_modules_are_imported_late(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
