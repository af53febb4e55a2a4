"""`watersmeet replace`: what it hands to the session, and what it prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from watersmeet.cli.main import app
from watersmeet.plan.replacing import OperatorVerdict, Verdict, Way
from watersmeet.runtime.replace.counts import Counts
from watersmeet.runtime.replace.switch import Replaced
from watersmeet.session.replacing import JobReplaced

RUNNER = CliRunner()
SELECT = "SELECT a.k FROM a"
AS_IT_IS = OperatorVerdict("join_2", Way.AS_IT_IS)
CHANGED = OperatorVerdict("join_1", Way.CHANGED, ("o:city string is added",))
ANEW = OperatorVerdict("join_1", Way.ANEW, (), "it emits otherwise")
FOUND = (
    Replaced("into_t", "/c/into_t", Verdict((CHANGED, AS_IT_IS), ("SELECT list: was a; is b",), True), 7_000, 1_000),
    Replaced("into_u", "/c/into_u", Verdict((CHANGED,))),
    Replaced("into_v", "/c/into_v", Verdict((AS_IT_IS,))),
    Replaced("into_w", "/c/into_w", Verdict((ANEW,)), is_new_version=True, counts=Counts({"o": (5, 5)}, (7, 1200))),
)  # fmt: skip
DONE = """stream o: city STRING is added; the catalogue says so now
into_t goes on, with its state changed; checkpoint /c/into_t
  SELECT list: was a; is b
  join_1 goes on, with its state changed
    o:city string is added
  complete for rows with an event time after 7
into_u goes on, with its state changed; checkpoint /c/into_u
  join_1 goes on, with its state changed
    o:city string is added
  rows from before stay as they were stored: what is changed holds for rows that come from now on
into_v is as it was; checkpoint /c/into_v
into_w has a new version; checkpoint /c/into_w
  join_1 needs a new version: it emits otherwise
  rows of o: 5 by the old version, 5 by the new one
  results: 7 by the old version, 1,200 by the new one
"""


@dataclass
class Fake:
    """A session that records what it is asked."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def replace(self, text: str, **options: Any) -> JobReplaced:
        self.calls.append((text, options))
        return JobReplaced(("stream o: city STRING is added",), FOUND)

    def stop(self) -> None:
        pass


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    fake = Fake()
    monkeypatch.setattr("watersmeet.cli.spark.start_session", lambda *_: fake)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(SELECT)
    return fake


def test_a_job_is_handed_on_and_what_was_done_is_printed(session: Fake, tmp_path: Path) -> None:
    words = ["replace", "job.sql", "--query", "into_t", "--from", "stored", "--accept-counts", "--checkpoint", "c"]
    result = RUNNER.invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == DONE
    wanted = {"query": "into_t", "start": "stored", "accept_counts": True, "dry_run": False, "real_time": False}
    assert session.calls == [(SELECT, {**wanted, "checkpoint": f"{tmp_path}/c"})]


def test_a_dry_run_says_what_would_be_done(session: Fake) -> None:
    result = RUNNER.invoke(app, ["replace", "job.sql", "--dry-run"])
    assert result.exit_code == 0, result.stderr
    assert "stream o: city STRING is added\n" in result.stdout
    assert "into_w needs a new version; checkpoint" in result.stdout
    assert "--from stored: empty state" in result.stdout
    assert session.calls[0][1]["dry_run"]


@pytest.mark.parametrize("start", ["earliest", "yesterday"])
def test_where_a_new_version_begins_is_checked_first(session: Fake, start: str) -> None:
    result = RUNNER.invoke(app, ["replace", "job.sql", "--from", start])
    assert result.exit_code == 1
    assert f"--from {start}" in result.stderr
    assert "write stored, beginning, or a time" in result.stderr
    assert not session.calls
