from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.cli.main import app
from watersmeet.cli.parameters import local_folder, make_workspace, named_place, read_script
from watersmeet.errors import ConfigError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def test_a_script_from_another_system(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_bytes(BYTE_ORDER_MARK + "SELECT 'é'\r\nFROM s;".encode())
    assert read_script(str(path)) == "SELECT 'é'\nFROM s;"


@pytest.mark.parametrize("content", [b"SELECT \xff", b"SELECT \x00 1", "SELECT 1".encode("utf-16")])
def test_files_that_are_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    path = tmp_path / "job.sql"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"job.sql is not UTF-8 text"):
        read_script(str(path))
    # whatever the encoding of this process's standard input
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="latin-1"))
    with pytest.raises(ConfigError, match="standard input is not UTF-8 text"):
        read_script("-")


def test_no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match="there is no standard input to read"):
        read_script("-")


def test_a_folder_is_not_a_script(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_script(str(tmp_path))
    with pytest.raises(ConfigError, match="a file without a name cannot be read"):
        read_script("")


def test_the_workspace_is_created(tmp_path: Path) -> None:
    make_workspace(tmp_path / "a" / "b")
    make_workspace(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("below", ["", "b"])
def test_a_workspace_that_is_a_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ConfigError) as refused:
        make_workspace(tmp_path / "a" / below)
    assert str(refused.value) == (
        f"{tmp_path / 'a' / below} cannot be the workspace: it is a file, or inside one\n"
        "hint: name another folder with --workspace"
    )


def test_a_workspace_may_be_on_a_store() -> None:
    assert named_place("w") == Path("w")
    assert named_place("file:///tmp/w") == Path("/tmp/w")
    store = named_place("s3a://bucket/x")
    assert store == "s3a://bucket/x"
    assert local_folder(store) == Path(".watersmeet")
    assert local_folder(Path("w")) == Path("w")


@pytest.mark.parametrize("command", [["explain", "-e", "SELECT 1"], ["rescale", "feeds", "--buckets", "4"]])
def test_without_spark_a_workspace_on_a_store_is_not_read(command: list[str]) -> None:
    run = CliRunner().invoke(app, [*command, "--workspace", "s3a://bucket/x"])
    assert run.exit_code == 1
    assert "does not start Spark, which alone reads the workspace s3a://bucket/x" in run.stderr


def test_a_workspace_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests may run as root, who can write everywhere.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="it is not writable"):
        make_workspace(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError, match="Permission denied"):
        make_workspace(tmp_path)


@pytest.mark.parametrize(
    ("workspace", "message"), [("job.sql", "it is a file, or inside one"), ("broken", "is not a catalogue")]
)
def test_spark_does_not_start_on_an_unusable_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text("SHOW STREAMS;")
    Path("broken").mkdir()
    Path("broken", "catalog.json").write_text("{")
    result = CliRunner().invoke(app, ["run", "job.sql", "-w", workspace])
    assert result.exit_code == 1
    assert message in result.stderr
    assert "starting Spark" not in result.stderr
