from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from watersmeet.errors import ConfigError
from watersmeet.session.class_archive import class_archive, new_archive, recording_options, sharing_options
from watersmeet.session.jvm import _environment_of_jvm


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, and an empty Python environment."""
    binary = tmp_path / "java home" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(binary.parents[1]))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    return binary


@pytest.mark.usefixtures("java")
def test_an_archive_is_used_once_it_is_there() -> None:
    assert sharing_options() == []
    archive, partial = new_archive()
    assert (archive, partial.parent) == (class_archive(), archive.parent)
    assert recording_options(partial)[0] == f"-XX:ArchiveClassesAtExit={partial}"
    partial.touch()
    assert sharing_options() == []  # half written
    partial.replace(archive)
    assert sharing_options()[0] == f"-XX:SharedArchiveFile={archive}"


def test_another_java_has_another_archive(java: Path) -> None:
    before = class_archive()
    os.utime(java, (1, 1))
    assert class_archive() != before


def test_without_java_there_is_no_archive(java: Path) -> None:
    java.unlink()
    assert (class_archive(), sharing_options()) == (None, [])
    with pytest.raises(ConfigError, match="there is no Java to start Spark with"):
        new_archive()


@pytest.mark.usefixtures("java")
def test_an_environment_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "environment").touch()
    with pytest.raises(ConfigError, match=r"share/watersmeet cannot be made: .*\nhint: run this as the owner"):
        new_archive()


def test_options_are_quoted_and_those_of_the_user_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    with _environment_of_jvm(Path('/a "b"'), ["-Dx=a b"]):
        assert os.environ["SPARK_SUBMIT_OPTS"] == r'"-Djava.io.tmpdir=/a \"b\"" "-Dx=a b" -Xmx1g'
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xmx1g"
