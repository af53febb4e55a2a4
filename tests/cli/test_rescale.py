"""`watersmeet rescale`: what it hands to the session, and what it prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from watersmeet.catalog.catalog import Catalog
from watersmeet.catalog.streams import StreamDef
from watersmeet.cli.main import app
from watersmeet.runtime.rescale.change import OperatorChange
from watersmeet.runtime.rescale.switch import Rescaled

RUNNER = CliRunner()
SELECT = "SELECT a.k FROM a"
FOUND = [
    Rescaled(
        "into_t",
        "/checkpoints/into_t",
        4,
        7,
        [OperatorChange("join_1", 4, 7, 1234, 56789), OperatorChange("aggregate", 1, 1, 1, 42, "one bucket: no key")],
    ),
    Rescaled("into_u", "/checkpoints/into_u", 7, 7, []),
]
CHANGED = """into_t has 7 buckets, before 4; checkpoint /checkpoints/into_t
  join_1: 4 → 7; 1,234 rows, 56,789 bytes
  aggregate: 1 buckets, as before (one bucket: no key); 1 rows, 42 bytes
  the state of before is deleted once a batch with these buckets has been committed
into_u has 7 buckets already
"""


@dataclass
class Fake:
    """A session that records what it is asked."""

    calls: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    def rescale(self, text: str, buckets: int, **options: Any) -> list[Rescaled]:
        self.calls.append((text, buckets, options))
        return FOUND

    def stop(self) -> None:
        pass


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    fake = Fake()
    monkeypatch.setattr("watersmeet.cli.spark.start_session", lambda *_: fake)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(SELECT)
    return fake


def test_a_job_is_handed_on_and_the_change_printed(session: Fake, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["rescale", "job.sql", "--buckets", "7", "--query", "into_t", "--checkpoint", "c"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout == CHANGED
    options = {"query": "into_t", "checkpoint": f"{tmp_path}/c", "dry_run": False, "real_time": False}
    assert session.calls == [(SELECT, 7, options)]


def test_a_dry_run_says_what_would_change(session: Fake) -> None:
    result = RUNNER.invoke(app, ["rescale", "job.sql", "--buckets", "7", "--dry-run", "--real-time"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("into_t would have 7 buckets, before 4;")
    assert "deleted" not in result.stdout
    assert session.calls[0][2] == {"query": None, "checkpoint": None, "dry_run": True, "real_time": True}


def test_the_query_of_a_stream_is_found_by_the_streams_name(session: Fake) -> None:
    catalog = Catalog(Path(".watersmeet"))
    Path(".watersmeet").mkdir()
    catalog.add(StreamDef(name="Fed", columns=(), derived=True, definition=f"CREATE STREAM Fed AS {SELECT}"))
    catalog.add(StreamDef(name="plain", columns=()))
    assert RUNNER.invoke(app, ["rescale", "fed", "--buckets", "2"]).exit_code == 0
    assert session.calls[0][0] == f"CREATE STREAM Fed AS {SELECT}"
    refused = RUNNER.invoke(app, ["rescale", "plain", "--buckets", "2"])
    assert refused.exit_code == 1
    assert "no query of its own feeds the stream plain" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nothing.sql", "--buckets", "2"], 1, "there is no file nothing.sql"),
        (["job.sql", "--buckets", "0"], 1, "a query cannot have 0 buckets\nhint: choose 1 to 4096"),
        (["job.sql", "--buckets", "2", "--checkpoint", ""], 2, "--checkpoint names no folder"),
        (["job.sql"], 2, "Missing option '--buckets'"),
    ],
)
def test_wrong_arguments_are_one_sentence(session: Fake, arguments: list[str], code: int, said: str) -> None:
    result = RUNNER.invoke(app, ["rescale", *arguments])
    assert result.exit_code == code
    assert said in result.stderr
    assert session.calls == []
