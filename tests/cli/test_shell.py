from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pygments.token import Keyword  # type: ignore[import-untyped]
from typer.testing import CliRunner

from tests.cli.fakes import FakeQuery, FakeSession, press_ctrl_c
from tests.cli.terminal import open_terminal
from watersmeet.cli.main import app
from watersmeet.cli.prompt import SqlCompleter, WatersmeetSqlLexer, is_finished, make_prompt
from watersmeet.cli.rows import show_changes
from watersmeet.cli.shell import HELP, Shell, _catalog_of
from watersmeet.errors import BindError, CatalogError, LimitError, Position
from watersmeet.session.results import Message, Result, Started, Table
from watersmeet.sql.statements import InsertSelect, Show, Statement

STREAMS = {"orders": ("order_id", "amount", "ts"), "payments": ("order_id", "paid")}
Type = Callable[[FakeSession, str], None]


@pytest.fixture
def type_in(tmp_path: Path) -> Type:
    """Type text into a shell on a session, and wait until it is executed."""

    def typed(session: FakeSession, text: str) -> None:
        with create_pipe_input() as keys:
            keys.send_text(text + "\x04")  # Ctrl-D exits
            prompt = make_prompt(tmp_path, lambda: STREAMS, input=keys, output=DummyOutput())
            with Shell(lambda: session).opened() as shell:  # type: ignore[arg-type, return-value]
                shell.loop(prompt)

    return typed


def answering(result: Result) -> FakeSession:
    return FakeSession(lambda _: result)


def test_results_are_tables(type_in: Type, capsys: pytest.CaptureFixture[str]) -> None:
    type_in(answering(Table(("stream", "connector"), [("orders", "kafka")])), "SHOW STREAMS;\r")
    header, _, row = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert header == ["stream", "connector"]
    assert row == ["orders", "kafka"]


def test_enter_starts_a_new_line_until_the_semicolon(type_in: Type) -> None:
    session = answering(Message("created"))
    type_in(session, "CREATE STREAM s (\ri INT,\rk STRING);\r")
    assert [text for text, _, _ in session.calls] == ["CREATE STREAM s (\ni INT,\nk STRING)"]


def test_the_session_opens_with_the_first_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def too_early() -> FakeSession:
        raise AssertionError("nothing was asked of Spark")

    with create_pipe_input() as keys:
        keys.send_text("help\r;\rexit\r")
        prompt = make_prompt(tmp_path, lambda: STREAMS, input=keys, output=DummyOutput())
        with Shell(too_early).opened() as shell:  # type: ignore[arg-type]
            shell.loop(prompt)
    assert capsys.readouterr().out == f"{HELP}\n"


def test_the_state_of_queries_is_shown_without_a_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def too_early() -> FakeSession:
        raise AssertionError("nothing was asked of Spark")

    with create_pipe_input() as keys:
        keys.send_text("SELECT * FROM state('nope');\rexit\r")
        prompt = make_prompt(tmp_path, lambda: STREAMS, input=keys, output=DummyOutput())
        with Shell(too_early, queries=str(tmp_path)).opened() as shell:  # type: ignore[arg-type]
            shell.loop(prompt)
    assert f"there is no query nope in {tmp_path}" in capsys.readouterr().err


def test_an_error_is_printed_with_its_position_and_the_shell_continues(
    type_in: Type, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Statement) -> Result:
        raise BindError("there is no stream o", hint="did you mean orders?", position=Position(1, 15))

    session = FakeSession(refuse)
    type_in(session, "SELECT * FROM o;\rSELECT * FORM orders;\rSHOW STREAMS;\r")
    printed = capsys.readouterr().err
    assert "there is no stream o (line 1, column 15)\nhint: did you mean orders?" in printed
    assert "^" in printed  # the error in the second statement, which does not reach the session
    assert len(session.calls) == 2


def test_several_statements_keep_their_positions(type_in: Type) -> None:
    session = answering(Message("done"))
    type_in(session, "SHOW STREAMS; SHOW QUERIES;\r")
    assert [text for text, _, _ in session.calls] == ["SHOW STREAMS", "              SHOW QUERIES"]


def test_a_select_prints_until_ctrl_c(type_in: Type, capsys: pytest.CaptureFixture[str]) -> None:
    query = FakeQuery(ends_after=99, on_wait=press_ctrl_c)
    session = FakeSession(lambda _: Started(query))  # type: ignore[arg-type]
    type_in(session, "SELECT * FROM orders;\r")
    assert (query.stopped, query.waits) == (True, 1)
    printed = capsys.readouterr().err
    assert "77 rows out of 1,520 in" in printed
    assert "left out: 10 bad rows (watersmeet run keeps them), 90 late ones" in printed


def test_each_select_starts_from_the_beginning(type_in: Type) -> None:
    session = FakeSession(lambda _: Started(FakeQuery()))  # type: ignore[arg-type]
    type_in(session, "SELECT * FROM orders;\rSELECT * FROM orders;\r")
    first, second = (checkpoint for _, _, checkpoint in session.calls)
    assert first is not None
    assert first != second
    assert not Path(first).exists()


def counting() -> FakeSession:
    """Return a session whose SELECTs emit the count 1, correct it to 2 in a second batch, and end."""

    def count() -> None:
        session.show(["n"], [(1, (1,))], 0)
        session.show(["n"], [(-1, (1,)), (1, (2,))], 1)

    session = FakeSession(lambda _: Started(FakeQuery(on_wait=count)))  # type: ignore[arg-type]
    return session


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("SELECT i FROM orders;\r", "+ 1 - 1 + 2"),
        ("SELECT count(*) AS n FROM orders;\r", "--- n 1 --- n 2"),
        ("view changes\rSELECT count(*) AS n FROM orders;\r", "+ 1 - 1 + 2"),
        ("view table;\rSELECT i FROM orders;\r", "--- n 1 --- n 2"),
        ("VIEW TABLE\rview auto\rSELECT i FROM orders;\r", "+ 1 - 1 + 2"),
        ("SELECT count(*) AS n FROM orders;\rINSERT INTO t SELECT i FROM orders;\r", "--- n 1 --- n 2"),
    ],
)
def test_a_select_uses_the_chosen_view(
    type_in: Type, capsys: pytest.CaptureFixture[str], typed: str, shown: str
) -> None:
    session = counting()
    type_in(session, typed)
    words = capsys.readouterr().out.split()
    assert " ".join(word for word in words if word in {"+", "-", "---", "n", "1", "2"}) == shown
    assert session.show is show_changes or "INSERT" not in typed


def test_on_a_terminal_the_last_table_stays(type_in: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    type_in(counting(), "SELECT count(*) AS n FROM orders;\r")
    assert [line for line in terminal.lines if "─" not in line] == ["n", "2"]


def test_the_view_is_printed_and_an_unknown_one_refused(type_in: Type, capsys: pytest.CaptureFixture[str]) -> None:
    type_in(answering(Message("done")), "view\rview tables;\rview table\rview\r")
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [f"view {view} (of auto, changes, table)" for view in ("auto", "table", "table")]
    assert printed.err == "there is no view tables\nhint: view auto, view changes, view table\n"


def test_an_insert_runs_in_the_background(type_in: Type, capsys: pytest.CaptureFixture[str]) -> None:
    query = FakeQuery("fill", ends_after=99)

    def answer(statement: Statement) -> Result:
        match statement:
            case InsertSelect():
                return Started(query)  # type: ignore[arg-type]
            case Show(what="QUERIES"):
                return Table(("query",), [("fill",)])
        raise AssertionError(statement)

    session = FakeSession(answer)
    type_in(session, "INSERT INTO t SELECT * FROM orders;\rSHOW QUERIES;\r")
    printed = capsys.readouterr().out
    assert "fill runs in the background; STOP QUERY fill ends it" in printed
    assert "stopped fill; its statement resumes it from /checkpoints/q" in printed
    assert query.waits == 0
    assert session.stopped


def test_the_error_of_a_background_query_is_printed_once(type_in: Type, capsys: pytest.CaptureFixture[str]) -> None:
    query = FakeQuery("fill", ends_after=0, error=LimitError("the state of join_1 is full"))
    session = FakeSession(lambda statement: Message("done") if isinstance(statement, Show) else Started(query))  # type: ignore[arg-type]
    type_in(session, "INSERT INTO t SELECT * FROM orders;\rSHOW STREAMS;\rSHOW STREAMS;\r")
    assert capsys.readouterr().err.count("the state of join_1 is full") == 1


def test_ctrl_c_discards_the_line(type_in: Type) -> None:
    session = answering(Message("done"))
    type_in(session, "SELECT nonsense\x03SHOW STREAMS;\r")
    assert [text for text, _, _ in session.calls] == ["SHOW STREAMS"]


def test_the_history_is_kept_in_the_workspace(type_in: Type, tmp_path: Path) -> None:
    type_in(answering(Message("done")), "SHOW STREAMS;\r")
    assert "+SHOW STREAMS;" in (tmp_path / "history").read_text()


def test_the_history_is_for_its_owner_alone(type_in: Type, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        type_in(answering(Message("done")), "SHOW STREAMS;\r")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600


def test_without_a_terminal_the_shell_points_to_run() -> None:
    result = CliRunner().invoke(app, ["sql"], input="SHOW STREAMS;")
    assert result.exit_code == 1
    assert result.stderr == (
        "the shell needs a terminal\nhint: watersmeet run - takes statements from standard input\n"
    )


def test_a_catalog_damaged_later_only_disables_completion(tmp_path: Path) -> None:
    streams = _catalog_of(tmp_path)
    (tmp_path / "catalog.json").write_text("{")
    assert streams() == {}
    with pytest.raises(CatalogError, match="is not a catalogue"):
        _catalog_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT * FROM o", {"orders"}),
        ("SELECT * FROM orders AS o JOIN pay", {"payments"}),
        ("SELECT am", {"amount"}),
        ("SELECT * FROM payments WHERE pa", {"paid", "payments"}),
        ("SELECT * FROM orders o JOIN payments p ON o.order_id = p.", {"order_id", "paid"}),
        ("SELECT * FROM orders o WHERE o.a", {"amount"}),
        ("sel", {"select"}),
        ("SELECT 1 WITH", {"WITH", "WITHIN"}),
        ("DROP STREAM pa", {"payments"}),
        ("ex", {"exit", "exists", "explain"}),
        ("vi", {"view"}),
        ("view ", {"auto", "changes", "table"}),
        ("view t", {"table"}),
    ],
)
def test_completion(text: str, wanted: set[str]) -> None:
    found = SqlCompleter(lambda: STREAMS).get_completions(Document(text), CompleteEvent(completion_requested=True))
    assert {completion.text for completion in found} == wanted


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT 1; -- over", True),
        ("SELECT 1; SELECT 2", False),
        ("exit", True),
        ("help", True),
        ("view", True),
        ("View table", True),
        ("SELECT view", False),
    ],
)
def test_when_enter_executes(text: str, finished: bool) -> None:
    assert is_finished(text) is finished


def test_keywords_are_highlighted() -> None:
    tokens = {value: token for token, value in WatersmeetSqlLexer().get_tokens("SELECT a WITHIN b EMIT CHANGELOG")}
    for word in ("SELECT", "WITHIN", "EMIT", "CHANGELOG"):
        assert tokens[word] in Keyword
    assert tokens["a"] not in Keyword
