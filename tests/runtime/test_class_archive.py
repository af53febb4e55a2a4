from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from watersmeet.errors import ConfigError, WatersmeetError
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


def record(content: bytes) -> Path:
    with new_archive() as path:
        path.write_bytes(content)
        assert recording_options(path)[0] == f"-XX:ArchiveClassesAtExit={path}"
        assert class_archive() is None or class_archive() != path
    archive = class_archive()
    assert archive is not None
    return archive


@pytest.mark.usefixtures("java")
def test_an_archive_is_used_once_it_is_there() -> None:
    assert sharing_options() == []
    archive = record(b"classes")
    assert sharing_options()[0] == f"-XX:SharedArchiveFile={archive}"
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.usefixtures("java")
def test_an_archive_that_was_cut_short_is_not_used() -> None:
    record(b"classes").write_bytes(b"class")
    assert sharing_options() == []


@pytest.mark.usefixtures("java")
def test_a_new_archive_replaces_the_earlier_ones() -> None:
    first = record(b"classes")
    second = record(b"more classes")
    assert list(second.parent.iterdir()) == [second] != [first]
    again = record(b"more_classes")
    assert list(again.parent.iterdir()) == [again]


@pytest.mark.usefixtures("java")
def test_an_earlier_archive_stays_if_recording_fails() -> None:
    archive = record(b"classes")
    with pytest.raises(WatersmeetError, match=r"recorded no archive.*\nhint: is there room"), new_archive():
        pass
    with suppress(KeyboardInterrupt), new_archive() as path:
        path.write_bytes(b"half")
        raise KeyboardInterrupt
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.usefixtures("java")
def test_what_a_killed_process_left_is_removed() -> None:
    archive = record(b"classes")
    left = archive.parent / ".recording-by-another"
    left.mkdir()
    (left / "spark.jsa").write_bytes(b"half")
    assert list(record(b"other classes").parent.iterdir()) == [class_archive()]


def test_another_java_has_another_archive(java: Path) -> None:
    record(b"classes")
    os.utime(java, (1, 1))
    assert class_archive() is None


def test_without_java_there_is_no_archive(java: Path) -> None:
    java.unlink()
    assert (class_archive(), sharing_options()) == (None, [])
    with pytest.raises(ConfigError, match="there is no Java to start Spark with"), new_archive():
        pass


@pytest.mark.usefixtures("java")
def test_an_environment_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "environment").touch()
    expected = r"share/watersmeet cannot be made: .*\nhint: run this as the owner"
    with pytest.raises(ConfigError, match=expected), new_archive():
        pass


def test_options_are_quoted_and_those_of_the_user_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    with _environment_of_jvm(Path('/a "b"'), ["-Dx=a b"], "local[1]"):
        options = os.environ["SPARK_SUBMIT_OPTS"]
    assert options.startswith(r'"-Djava.io.tmpdir=/a \"b\"" ')
    assert options.endswith(' "-Dx=a b" -Xmx1g')
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xmx1g"
