"""Standard error as JSON lines: what queries do is an event each, and nothing else is written there."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.cli.fakes import FakeQuery, FakeSession
from tests.monitoring.statuses import CHAIN, STARTED, counters_of_chain, plan_of, status_after
from watersmeet.cli.json_log import JsonLog, json_lines
from watersmeet.cli.main import app
from watersmeet.errors import ConnectorError, WatersmeetError
from watersmeet.monitoring.access import TOKEN_VARIABLE
from watersmeet.runtime.history import Failure
from watersmeet.runtime.outages import Outages
from watersmeet.runtime.status import QueryState, QueryStatus
from watersmeet.session.results import Message, Started
from watersmeet.settings.secrets import remember
from watersmeet.sql.statements import CreateStream, Statement

RUNNER = CliRunner()
PLAN = plan_of(CHAIN)
WAITS = "waiting for PostgreSQL at db:5432: refused (attempt {}, {} s of 1 min)"


@dataclass
class Stepping(FakeQuery):
    """A query that has another status after each wait."""

    statuses: tuple[QueryStatus, ...] = ()

    def status(self) -> QueryStatus:
        return self.statuses[min(self.waits, len(self.statuses) - 1)]


def after(batches: int, **others: Any) -> QueryStatus:
    counted = [(5.0 * (number + 1), counters_of_chain(100 * (number + 1))) for number in range(batches)]
    return status_after(PLAN, counted, now=100, **others)


def parsed(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        assert list(event)[:3] == ["time", "level", "event"]
        assert event["time"].endswith("Z")
    return found


def test_every_batch_is_an_event_with_its_own_rows_and_all_so_far() -> None:
    stream = io.StringIO()
    log, query = JsonLog(stream), Stepping(statuses=(after(0), after(1), after(4), after(4)))
    for query.waits in range(4):
        log.update([query])  # type: ignore[list-item]
    started, *batches = parsed(stream.getvalue())
    assert (started["event"], started["query"], started["targets"]) == ("started", "q", ["results"])
    assert [(each["event"], each["batch"]) for each in batches] == [("batch", number) for number in range(4)]
    assert [each["rows_in"] for each in batches] == [300, 300, 300, 300]
    assert [each["totals"]["rows_in"] for each in batches] == [300, 600, 900, 1200]
    assert (batches[0]["late"], batches[1]["late"], batches[1]["totals"]["late"]) == (2, 0, 2)
    assert (batches[1]["seconds"], batches[1]["rows_out"], batches[1]["state_bytes"]) == (1.5, 10, 780)
    assert batches[0]["time"] < batches[1]["time"]


def test_outages_failures_and_the_end_are_events() -> None:
    away = Failure(STARTED + 3, "OutageError", "PostgreSQL is away", went_on=True)
    fatal = Failure(STARTED + 9, "ConnectorError", "PostgreSQL refuses", went_on=False)
    statuses = (
        after(1, state=QueryState.WAITING, waiting=WAITS.format(1, 0)),
        after(1, state=QueryState.WAITING, waiting=WAITS.format(1, 2)),
        after(1, state=QueryState.WAITING, waiting=WAITS.format(2, 4)),
        after(1, failures=(away,)),
        after(2, failures=(away, fatal), state=QueryState.FAILED),
        after(2, failures=(away, fatal), state=QueryState.FAILED),
    )
    stream = io.StringIO()
    log, query = JsonLog(stream), Stepping(statuses=statuses)
    for query.waits in range(len(statuses)):
        log.update([query])  # type: ignore[list-item]
    events = parsed(stream.getvalue())
    assert [(each["event"], each["level"]) for each in events] == [
        ("started", "info"),
        ("batch", "info"),
        ("waiting", "warning"),
        ("waiting", "warning"),
        ("failed", "warning"),
        ("resumed", "info"),
        ("batch", "info"),
        ("failed", "error"),
        ("ended", "error"),
    ]
    assert "attempt 2" in events[3]["message"]
    assert (events[4]["kind"], events[4]["went_on"], events[7]["went_on"]) == ("OutageError", True, False)
    assert (events[-1]["state"], events[-1]["batches"], events[-1]["totals"]["rows_in"]) == ("failed", 2, 600)


def test_what_anybody_writes_to_standard_error_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    remember({"password": "letmein"})
    with json_lines():
        sys.stderr.write("one\ntwo, ")
        typer.echo('password letmein\n\n  "three"\r', err=True)
        logging.getLogger("a.library").warning("careful with %s", "letmein")
        logging.getLogger("a.library").info("nobody asked")
        logging.getLogger(Outages.__module__).warning("an event of its query")
        sys.stderr.write("no end")
    assert sys.stderr is stream
    events = parsed(stream.getvalue())
    assert [each["message"] for each in events] == [
        "one",
        "two, password ***",
        '  "three"',
        "careful with ***",
        "no end",
    ]
    assert (events[3]["event"], events[3]["level"], events[3]["logger"]) == ("log", "warning", "a.library")


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (WatersmeetError("no"), 1, "WatersmeetError"),
        (OSError(28, "full"), 1, "OSError"),
        (KeyError("k"), 1, "KeyError"),
    ],
)
def test_an_error_is_an_event(error: Exception, code: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(typer.Exit) as ended, json_lines():
        raise error
    (event,) = parsed(stream.getvalue())
    assert (ended.value.exit_code, event["event"], event["kind"]) == (code, "error", kind)
    assert ("traceback" in event) == (kind == "KeyError")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run a script with a fake session; its query ends after two waits, or with an error."""

    def run(*options: str, error: WatersmeetError | None = None, script: str | None = None) -> Result:
        query = Stepping(ends_after=3, error=error, statuses=(after(1), after(2), after(3, state=QueryState.ENDED)))

        def answer(statement: Statement) -> Any:
            return Message("created stream s") if isinstance(statement, CreateStream) else Started(query)  # type: ignore[arg-type]

        monkeypatch.setattr("watersmeet.cli.spark.start_session", lambda *_: FakeSession(answer))
        path = tmp_path / "job.sql"
        path.write_text(script or "CREATE STREAM s (i INT);\nSELECT * FROM s;\n")
        return RUNNER.invoke(app, ["run", str(path), "--log-format", "json", *options])

    return run


def test_all_lines_of_a_run_are_events(run: Callable[..., Result]) -> None:
    result = run("--bounded")
    assert result.exit_code == 0
    events = parsed(result.stderr)
    assert [each["event"] for each in events if each["event"] != "message"] == ["started", *["batch"] * 3, "ended"]
    assert "created stream s" in [each.get("message") for each in events]


def test_all_lines_of_a_run_that_fails_are_events(run: Callable[..., Result]) -> None:
    result = run(error=ConnectorError("the database is gone", hint="look for it"))
    assert result.exit_code == 1
    last = parsed(result.stderr)[-1]
    assert (last["event"], last["kind"]) == ("error", "ConnectorError")
    assert "look for it" in last["message"]


@pytest.mark.parametrize(
    ("options", "script", "code"),
    [(["--bounded", "--drain"], None, 2), ([], "SELEC 1", 1), ([], ";", 1), (["--max-restarts", "2"], None, 2)],
)
def test_what_is_wrong_with_a_command_is_an_event(
    run: Callable[..., Result], options: list[str], script: str | None, code: int
) -> None:
    result = run(*options, script=script)
    assert result.exit_code == code
    (event,) = parsed(result.stderr)
    assert event["event"] == "error"


def test_no_token_gets_into_the_log(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("--ui-address", "0.0.0.0:0")
    assert result.exit_code == 2
    assert TOKEN_VARIABLE in parsed(result.stderr)[0]["message"]

    class Page:
        url = "http://host:4140/?token=a-secret-of-many-characters"

    monkeypatch.setenv(TOKEN_VARIABLE, "a-secret-of-many-characters")
    monkeypatch.setattr(FakeSession, "ui", lambda *_: Page, raising=False)
    result = run("--ui-address", "0.0.0.0:0", "--bounded")
    assert "live page: http://host:4140/" in [each.get("message") for each in parsed(result.stderr)]
    assert "a-secret" not in result.stderr
