from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, Group
from typer.testing import CliRunner

from tests.cli.fakes import REPORT, FakeQuery, FakeSession, press_ctrl_c
from tests.cli.terminal import open_terminal
from watersmeet.cli.interrupt import Interrupt
from watersmeet.cli.live import View
from watersmeet.cli.main import app
from watersmeet.cli.observers import LogFormat, Observers
from watersmeet.cli.progress import LiveTable, PlainLines, progress_line, progress_table, screen, summary
from watersmeet.cli.rows import out
from watersmeet.cli.run import follow, resume_command, resume_words, wait_for
from watersmeet.cli.run_bars import bars
from watersmeet.errors import CheckpointError
from watersmeet.runtime.outages import Outages
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.report import OperatorReport, Report, report_of
from watersmeet.runtime.run_progress import InputProgress, RunProgress, Tasks, Unit
from watersmeet.session.results import Message, Plan, Result, Started, Table
from watersmeet.sql.statements import CreateStream, Explain, Show, Statement

RUNNER = CliRunner()
Use = Callable[[Callable[[Statement], Result]], FakeSession]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Replace the session that a command starts with a fake."""

    def put(answer: Callable[[Statement], Result]) -> FakeSession:
        session = FakeSession(answer)
        monkeypatch.setattr("watersmeet.cli.spark.start_session", lambda *_: session)
        return session

    return put


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.sql"
    path.write_text("CREATE STREAM s (i INT);\nSELECT * FROM s;\nINSERT INTO t SELECT * FROM s;\n")
    return str(path)


def started(*queries: FakeQuery) -> Callable[[Statement], Result]:
    left = list(queries)
    return lambda statement: Message("created") if isinstance(statement, CreateStream) else Started(left.pop(0))  # type: ignore[arg-type]


def test_a_bounded_run_waits_for_each_query_before_the_next_statement(use: Use, job: str) -> None:
    first, second = FakeQuery("first", ends_after=3), FakeQuery("second")
    seen: list[bool] = []

    answers: Iterator[Result] = iter([Message("created"), Started(first), Started(second)])  # type: ignore[arg-type]

    def in_turn(_: Statement) -> Result:
        seen.append(first.is_active)
        return next(answers)

    session = use(in_turn)
    result = RUNNER.invoke(app, ["run", job, "--bounded"])
    assert result.exit_code == 0, result.stderr
    assert seen == [True, True, False]
    assert [mode for _, mode, _ in session.calls] == [QueryMode.BOUNDED]
    assert session.stopped


def test_a_continuous_run_starts_all_and_waits_for_all(use: Use, job: str) -> None:
    first, second = FakeQuery("first", ends_after=4), FakeQuery("second", ends_after=2)
    session = use(started(first, second))
    assert RUNNER.invoke(app, ["run", job]).exit_code == 0
    assert [mode for _, mode, _ in session.calls] == [QueryMode.CONTINUOUS]
    assert not first.is_active
    assert not second.is_active


def test_standard_output_has_only_results(use: Use, tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text("CREATE STREAM s (i INT); SHOW STREAMS; EXPLAIN SELECT * FROM s; SELECT * FROM s;")

    def answer(statement: Statement) -> Result:
        match statement:
            case CreateStream():
                return Message("created stream s")
            case Show():
                return Table(("stream", "connector"), [("s", "embedded")])
            case Explain():
                return Plan("EMIT FINAL: it is so")
        return Started(FakeQuery())  # type: ignore[arg-type]

    use(answer)
    result = RUNNER.invoke(app, ["run", str(path), "--drain"])
    words = result.stdout.split()
    assert words[:2] == ["stream", "connector"]
    assert words[3:] == ["s", "embedded", "EMIT", "FINAL:", "it", "is", "so"]
    for text_part in ("created stream s", "started q; checkpoint /checkpoints/q", "= used"):
        assert text_part in result.stderr


def test_each_select_has_its_own_view(use: Use, tmp_path: Path) -> None:
    """Each query emits the count 1 and corrects it to 2, in two batches, while the other one runs."""
    path = tmp_path / "job.sql"
    path.write_text("SELECT max(i) AS n FROM s; SELECT i AS n FROM s; INSERT INTO t SELECT i AS n FROM s;")
    shows: list[Any] = []

    def count() -> None:
        for batch, changes in enumerate(([(1, (1,))], [(-1, (1,)), (1, (2,))])):
            for show in shows:
                show(["n"], changes, batch)
        shows.clear()

    def answer(_: Statement) -> Result:
        shows.append(session.show)
        return Started(FakeQuery(on_wait=count))  # type: ignore[arg-type]

    session = use(answer)
    for view, wanted in {
        "auto": "--- n 1 + 1 + 1 --- n 2 - 1 + 2 - 1 + 2",
        "table": "--- n 1 --- n 1 + 1 --- n 2 --- n 2 - 1 + 2",
        "changes": "+ 1 + 1 + 1 - 1 + 2 - 1 + 2 - 1 + 2",
    }.items():
        result = RUNNER.invoke(app, ["run", str(path), "--view", view])
        assert result.exit_code == 0, result.stderr
        assert " ".join(word for word in result.stdout.split() if "─" not in word) == wanted


@pytest.mark.parametrize("command", [["run", "-"], ["sql"]])
def test_an_unknown_view_is_refused_with_the_known_ones(command: list[str]) -> None:
    result = RUNNER.invoke(app, [*command, "--view", "tables"])
    assert result.exit_code == 2
    for text_part in ("--view", "tables", "auto", "changes", "table"):
        assert text_part in result.stderr


def test_the_table_drawn_in_place_is_printed_after_the_last_batch(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query may emit one more batch while it stops."""

    class Stopping(FakeQuery):
        def stop(self) -> None:
            super().stop()
            session.show(["n"], [(1, (7,))], 0)

    session = use(lambda _: Started(Stopping()))  # type: ignore[arg-type]
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stderr", terminal)
    with screen() as shown:
        follow(session, "SELECT count(*) AS n FROM s", QueryMode.DRAIN, None, [], shown, Interrupt())  # type: ignore[arg-type]
    assert [line for line in terminal.lines if "─" not in line] == ["started q; checkpoint /checkpoints/q", "n", "7"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_a_signal_to_a_service_stops_spark_too(use: Use, job: str, number: int, code: int) -> None:
    """Ctrl-C does not reach Spark, so if Spark has ended, that is an error."""

    def gone() -> None:
        raise ConnectionRefusedError

    queries = [FakeQuery(ends_after=99, on_wait=lambda: os.kill(os.getpid(), number)), FakeQuery(ends_after=99)]
    use(started(*queries)).on_stop = gone
    result = RUNNER.invoke(app, ["run", job])
    assert result.exit_code == code
    assert ("Spark has ended" in result.stderr) is (code == 1)
    assert (f"resume with: watersmeet run {job}" in result.stderr) is (code != 1)


def test_ctrl_c_stops_all_queries_and_prints_how_to_resume(use: Use, job: str, tmp_path: Path) -> None:
    first = FakeQuery("first", ends_after=99, on_wait=press_ctrl_c)
    second = FakeQuery("second", ends_after=99, checkpoint="/checkpoints/second")
    session = use(started(first, second))
    result = RUNNER.invoke(app, ["run", job, "-w", str(tmp_path), "--packages", "kafka", "--packages", "avro"])
    assert result.exit_code == 130
    assert first.stopped
    assert second.stopped
    assert session.stopped
    assert "1,500" in result.stderr  # the summary
    *_, stopped, at_first, at_second, again = result.stderr.splitlines()
    assert stopped == "stopped"
    assert at_first == "checkpoint of first: /checkpoints/q"
    assert at_second == "checkpoint of second: /checkpoints/second"
    assert again == f"resume with: watersmeet run {job} --workspace {tmp_path} --packages kafka --packages avro"


def test_a_query_that_fails_stops_the_others(use: Use, job: str) -> None:
    failing = FakeQuery("first", error=CheckpointError("the checkpoint is sealed", hint="take another"))
    other = FakeQuery("second", ends_after=99)
    use(started(failing, other))
    result = RUNNER.invoke(app, ["run", job])
    assert result.exit_code == 1
    assert other.stopped
    assert result.stderr.endswith("the checkpoint is sealed\nhint: take another\n")


def test_the_end_of_spark_is_reported_without_a_stack_trace(use: Use, job: str) -> None:
    def refuse() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    session = use(started(FakeQuery(on_wait=refuse), FakeQuery()))
    session.on_stop = refuse
    result = RUNNER.invoke(app, ["run", job])
    assert result.exit_code == 1
    assert "Spark has ended, and its queries with it\nhint: was there too little memory?" in result.stderr


@pytest.mark.parametrize(
    ("folder", "handed_on"),
    [
        ("/there", "/there"),
        ("here", "{}/here"),
        ("a:b", "{}/a:b"),
        ("s3a://bucket/x", "s3a://bucket/x"),
        ("file:/there", "file:/there"),
    ],
)
def test_the_checkpoint_folder_reaches_the_session(
    use: Use, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, handed_on: str
) -> None:
    monkeypatch.chdir(tmp_path)
    session = use(started(FakeQuery(), FakeQuery()))
    RUNNER.invoke(app, ["run", job, "--drain", "--checkpoint", folder])
    assert session.calls[0][1:] == (QueryMode.DRAIN, handed_on.format(tmp_path))


def test_a_script_on_standard_input(use: Use) -> None:
    session = use(started(FakeQuery()))
    assert RUNNER.invoke(app, ["run", "-"], input="SELECT 1 FROM s;").exit_code == 0
    assert session.calls[0][0] == "SELECT 1 FROM s;"


def test_bounded_and_drain_exclude_each_other(job: str) -> None:
    result = RUNNER.invoke(app, ["run", job, "--bounded", "--drain"])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "--bounded and --drain exclude each other")


@pytest.mark.parametrize("option", ["--bounded", "--drain"])
@pytest.mark.parametrize(
    "script",
    [
        "INSERT INTO t SELECT 1 FROM s SETTINGS mode = 'real_time';",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO t SELECT 1 FROM s SETTINGS mode = 'real_time'; END;",
    ],
)
def test_a_query_in_real_time_has_no_end(use: Use, option: str, script: str) -> None:
    session = use(started(FakeQuery()))
    result = RUNNER.invoke(app, ["run", "-", option], input=script)
    assert result.exit_code == 2
    assert result.stderr.startswith("a query in real time has no end: --bounded and --drain are for micro-batches\n")
    assert session.calls == []


def test_restarts_are_counted_where_there_are_some(job: str) -> None:
    result = RUNNER.invoke(app, ["run", job, "--max-restarts", "3"])
    assert (result.exit_code, result.stderr) == (2, "--max-restarts is for --restart-on-failure\n")


def test_a_checkpoint_needs_a_name(job: str) -> None:
    result = RUNNER.invoke(app, ["run", job, "--checkpoint", ""])
    assert (result.exit_code, result.stderr) == (2, "--checkpoint names no folder\n")


@pytest.mark.parametrize("text", ["", " \n", "-- nothing\n/* at all */;"])
def test_a_script_without_a_statement(text: str) -> None:
    result = RUNNER.invoke(app, ["run", "-"], input=text)
    assert (result.exit_code, result.stderr) == (1, "there is no statement in -\n")


def test_an_error_in_the_sql_is_reported_before_spark_starts(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text("SELECT *\nFORM s;")
    result = RUNNER.invoke(app, ["run", str(path)])
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    assert "starting Spark" not in result.stderr


def test_a_file_with_a_similar_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "orders.sql").touch()
    result = RUNNER.invoke(app, ["run", str(tmp_path / "order.sql")])
    assert result.stderr.splitlines()[1] == "hint: did you mean orders.sql?"


def test_waiting_ends_when_a_stop_is_requested() -> None:
    interrupt = Interrupt()
    query = FakeQuery(ends_after=99, on_wait=lambda: setattr(interrupt, "signal_number", 2))
    wait_for([query], PlainLines(), interrupt)  # type: ignore[list-item]
    assert (query.waits, interrupt.exit_code) == (1, 130)


def test_the_resume_command_is_quoted_and_omits_defaults() -> None:
    continuous = resume_command(resume_words("my job.sql", QueryMode.CONTINUOUS, ".watersmeet", None, (), None))
    assert continuous == "watersmeet run 'my job.sql'"
    full = resume_command(resume_words("j.sql", QueryMode.DRAIN, "w", "s3a://c/d", ("kafka",), "local[2]", View.TABLE))
    rest = "--workspace w --checkpoint s3a://c/d --packages kafka --master 'local[2]' --view table"
    assert full == f"watersmeet run j.sql --drain {rest}"


def test_progress_in_one_line() -> None:
    assert progress_line("q", REPORT) == (
        "q: 3 batches, 1,520 rows in (38/s), 77 out, 90 late, 10 quarantined, 5 rows of state, last batch 412 ms"
    )


def test_the_longest_lag_stands_in_the_line() -> None:
    minute = 60_000_000
    operators = {
        "join_1": OperatorReport(frontier=0, newest=minute),
        "join_2": OperatorReport(frontier=0, newest=2 * minute),
        "aggregate": OperatorReport(),
    }
    assert "frontier 2 min behind, last batch" in progress_line("q", replace(REPORT, operators=operators))


BOUNDED = RunProgress(inputs=(InputProgress("o", Unit.BYTES, 4_000_000, 1_000_000),), remaining=90.0)
ONE_BATCH = RunProgress(inputs=(InputProgress("o", Unit.BYTES, 4_000_000, 0),), tasks=Tasks(5, 8))


def test_the_line_of_a_bounded_run_says_how_much_is_done() -> None:
    line = progress_line("q", replace(REPORT, progress=BOUNDED))
    assert line.endswith(", last batch 412 ms; 25% done, about 1 min 30 s left: o 1 MB of 4 MB")


def test_a_terminal_has_a_bar_for_each_run_that_ends(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = RunProgress(inputs=(InputProgress("o"),))
    queries = [
        FakeQuery("half", reported=replace(REPORT, progress=BOUNDED)),
        FakeQuery("unknown", reported=replace(REPORT, progress=unknown)),
        FakeQuery("endless"),
        FakeQuery("over", reported=replace(REPORT, progress=BOUNDED), waits=1),
    ]
    table = LiveTable()
    table.update(queries)  # type: ignore[arg-type]
    assert table._lines == 4 + 2 + 4
    out().print(Group(*bars(queries)))  # type: ignore[arg-type]
    first, second = capsys.readouterr().out.splitlines()
    bar, _, text = first.partition(" half: ")
    assert len(bar.strip()) > 4
    assert text.strip() == "25% done, about 1 min 30 s left: o 1 MB of 4 MB"
    assert second.strip() == "unknown: how much is done is not known: o not known"


def test_plain_lines_say_every_ten_seconds_what_the_one_batch_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr("watersmeet.cli.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    query, lines = FakeQuery(reported=replace(REPORT, batches=0, progress=ONE_BATCH)), PlainLines()
    for _ in range(9):  # for 32 s, in which nothing else happens
        lines.update([query])  # type: ignore[list-item]
    assert capsys.readouterr().err.splitlines() == ["q: 62% done: 5 of 8 tasks of the one batch, o 0 bytes of 4 MB"]
    query.reported = replace(query.reported, progress=replace(ONE_BATCH, tasks=Tasks(6, 8)))
    for _ in range(4):
        lines.update([query])  # type: ignore[list-item]
    assert capsys.readouterr().err.splitlines() == ["q: 75% done: 6 of 8 tasks of the one batch, o 0 bytes of 4 MB"]


def test_plain_lines_only_after_progress(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines()
    query = FakeQuery()
    for _ in range(3):
        lines.update([query])  # type: ignore[list-item]
        lines._due = 0.0
    assert capsys.readouterr().err.count("q: 3 batches") == 1


def test_the_live_table_has_a_row_for_each_query(capsys: pytest.CaptureFixture[str]) -> None:
    table = LiveTable()
    table.update([FakeQuery("a"), FakeQuery("b", waits=1)])  # type: ignore[list-item]
    out().print(table)
    shown = capsys.readouterr().out
    assert "412 ms" in shown
    assert "ended" in shown
    assert progress_table([FakeQuery()]).row_count == 1  # type: ignore[list-item]


def test_the_summary_accounts_for_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    out().print(summary([FakeQuery()]))  # type: ignore[list-item]
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(" q ")]
    assert rows[0] == ["q", "o", "1,500", "1,000", "400", "90", "10"]
    assert rows[1] == ["q", "p", "20", "20", "0", "0", "0"]
    assert rows[2] == ["q", "3", "77", "5", "640"]


def test_the_summary_highlights_counts_that_do_not_add_up() -> None:
    astray = FakeQuery(reported=Report(rows_in={"o": 5}, used={"o": 4}))
    inputs = summary([astray]).renderables[0]  # type: ignore[list-item]
    assert inputs.rows[0].style == "bold red"  # type: ignore[union-attr]


def test_results_that_another_operator_takes_are_accounted_for_apart(capsys: pytest.CaptureFixture[str]) -> None:
    counters = {"join_1.in.o": 5, "join_1.used.o": 5, "aggregate.in.sub": 3, "aggregate.used.sub": 2}
    taken = report_of(
        {**counters, "aggregate.late.sub": 1}, batches=1, rows_out=2, last_batch_ms=9, streams=frozenset("o")
    )
    assert "5 rows in (0/s), 2 out, 1 late" in progress_line("q", taken)
    out().print(summary([FakeQuery(reported=taken)]))  # type: ignore[list-item]
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(" q ")]
    assert rows[:2] == [["q", "o", "5", "5", "0", "0", "0"], ["q", "aggregate", "sub", "3", "2", "0", "1", "0"]]


def test_the_summary_has_the_counters_of_operators() -> None:
    counted = FakeQuery(reported=Report(counters={"join_1.lookup_failed": 1200, "join_1.lookup_hits": 0}))
    _, counters = summary([counted]).renderables  # type: ignore[list-item]
    assert [str(cell) for cell in counters.columns[1].cells] == ["join_1.lookup_failed"]  # type: ignore[union-attr]
    assert list(counters.columns[2].cells) == ["1,200"]  # type: ignore[union-attr]


WAITING = replace(
    REPORT, waiting="waiting for PostgreSQL at db:5432: Connection refused (attempt 4, 38 s of 10 minutes)"
)


def test_plain_lines_say_what_a_query_waits_for_once_for_each_attempt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("watersmeet.cli.progress.time", SimpleNamespace(monotonic=lambda: next(clock) * 2))
    query, lines = FakeQuery(), PlainLines()
    for waiting in ("a (attempt 1, 0 s of 1 h)", "a (attempt 1, 1 s of 1 h)", "a (attempt 2, 2 s of 1 h)", "", ""):
        query.reported = replace(REPORT, waiting=waiting)
        lines.update([query])  # type: ignore[list-item]
    _, first, second = capsys.readouterr().err.splitlines()
    assert (first, second) == ("q: a (attempt 1, 0 s of 1 h)", "q: a (attempt 2, 2 s of 1 h)")


def test_a_live_table_says_what_a_query_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stderr", terminal)
    with screen() as shown:
        shown.update([FakeQuery(reported=WAITING), FakeQuery("other")])  # type: ignore[list-item]
        assert isinstance(shown, LiveTable)
        text = "".join(line.text for line in Console(width=120).render(shown))
    assert f"q: {WAITING.waiting}" in text
    assert "other: " not in text


def test_the_log_does_not_repeat_what_the_screen_says(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("watersmeet.runtime.outages")
    assert Outages.__module__ == log.name
    with screen():
        log.warning("a")
    log.warning("b")
    assert caplog.messages == ["b"]


# -- the live page -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (["--ui"], None),
        (["--ui-address", "127.0.0.1:0"], "127.0.0.1:0"),
        (["--ui", "--ui-address", "[::1]:9"], "[::1]:9"),
    ],
)
def test_the_live_page_is_opened_before_the_first_statement(
    use: Use, job: str, options: list[str], address: str | None
) -> None:
    session = use(started(FakeQuery("first"), FakeQuery("second")))
    opened: list[tuple[str | None, int]] = []

    def ui(address: str | None) -> SimpleNamespace:
        opened.append((address, len(session.calls)))
        return SimpleNamespace(url="http://here/")

    session.ui = ui  # type: ignore[attr-defined]
    result = RUNNER.invoke(app, ["run", job, *options])
    assert result.exit_code == 0, result.stderr
    assert opened == [(address, 0)]
    assert "live page: http://here/" in result.stderr


def test_without_being_asked_for_there_is_no_live_page(use: Use, job: str) -> None:
    use(started(FakeQuery("first"), FakeQuery("second")))
    result = RUNNER.invoke(app, ["run", job])
    assert result.exit_code == 0, result.stderr
    assert "live page" not in result.stderr


def test_an_address_that_is_none_is_refused_before_spark_starts(use: Use, job: str) -> None:
    session = use(started())
    result = RUNNER.invoke(app, ["run", job, "--ui-address", "nowhere"])
    assert result.exit_code != 0
    assert session.calls == []


def test_a_run_that_goes_on_is_observed_as_before() -> None:
    def words(ui: bool = False, address: str | None = None, otel: bool = False, form: str = "text") -> list[str]:
        return Observers(ui=ui, ui_address=address, otel=otel, log_format=LogFormat(form)).words

    assert words() == []
    assert words(ui=True) == ["--ui"]
    assert words(ui=True, address="0.0.0.0:80") == ["--ui-address", "0.0.0.0:80"]
    assert words(ui=True, otel=True, form="json") == ["--ui", "--otel", "--log-format", "json"]
