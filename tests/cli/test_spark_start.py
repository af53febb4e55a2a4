"""The start of Spark in the background."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fakes import FakeSession
from watersmeet.cli.rows import show_changes
from watersmeet.cli.spark import LOG_NAME, SparkStart
from watersmeet.errors import WatersmeetError
from watersmeet.session.results import Message

PATIENCE_SECONDS = 30


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    """The session that ``connect`` returns; no JVM is started."""
    made = FakeSession(lambda _: Message(""))
    monkeypatch.setattr("watersmeet.session.spark.launch_jvm", lambda **_: None)
    monkeypatch.setattr("watersmeet.session.session.connect", lambda **_: made)
    return made


def test_it_starts_before_anybody_waits(tmp_path: Path, session: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def launch(**_: Any) -> None:
        has_begun.set()
        may_end.wait(PATIENCE_SECONDS)

    monkeypatch.setattr("watersmeet.session.spark.launch_jvm", launch)
    start = SparkStart(tmp_path)
    assert has_begun.wait(PATIENCE_SECONDS)
    may_end.set()
    assert start.session() is session  # type: ignore[comparison-overlap]
    assert start.session().show is show_changes


def test_nothing_is_said_once_it_has_started(
    tmp_path: Path, session: FakeSession, capfd: pytest.CaptureFixture[str]
) -> None:
    start = SparkStart(tmp_path)
    start._starting.result(PATIENCE_SECONDS)
    start.session()
    assert capfd.readouterr() == ("", "")


def test_what_the_jvm_prints_goes_to_the_log_and_explains_a_failure(
    tmp_path: Path, session: FakeSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failures = iter([True, False])

    def launch(output: int, **_: Any) -> None:
        if next(failures):
            os.write(output, b"no such option: -Xyz\n\tat java.Main\n")
            raise WatersmeetError("Spark did not start")

    monkeypatch.setattr("watersmeet.session.spark.launch_jvm", launch)
    start = SparkStart(tmp_path)
    with pytest.raises(WatersmeetError) as found:
        start.session()
    assert found.value.detail == "no such option: -Xyz"
    assert "\tat java.Main" in (tmp_path / LOG_NAME).read_text()
    assert "-Xyz" not in "".join(capfd.readouterr())
    assert start.session() is session  # type: ignore[comparison-overlap]


@pytest.mark.usefixtures("session")
def test_after_it_is_abandoned_no_session_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr("watersmeet.session.spark.launch_jvm", lambda **_: may_end.wait(PATIENCE_SECONDS))
    monkeypatch.setattr("watersmeet.session.session.connect", lambda **_: pytest.fail("a session was opened"))
    start = SparkStart(tmp_path)
    start.abandon()
    may_end.set()
    with pytest.raises(WatersmeetError, match="abandoned"):
        start._starting.result(PATIENCE_SECONDS)
