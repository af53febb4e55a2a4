from __future__ import annotations

import pytest

from tests.cli.fakes import FakeQuery
from tests.cli.terminal import Terminal, open_terminal
from watersmeet.cli.live import View
from watersmeet.cli.progress import LiveTable, PlainLines
from watersmeet.cli.rows import drawing, out, show_changes
from watersmeet.cli.views import MAX_SHOWN, CurrentTable, drawn, show_of
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import Statement

NAMES = ["k", "n"]


def statement(text: str) -> Statement:
    (parsed,) = parse(text)
    return parsed


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip() and "─" not in line]


def drawn_now(terminal: Terminal) -> list[str]:
    """Return the screen below a printed line, which causes a redraw."""
    out().print("now:")
    lines = words("\n".join(terminal.lines))
    return lines[len(lines) - lines[::-1].index("now:") :]


def test_without_a_terminal_a_changed_table_is_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    table = CurrentTable(in_place=False)
    table(NAMES, [(1, ("b", 1)), (1, ("a", 1))], 0)
    table(NAMES, [], 1)
    table(NAMES, [(1, ("a", 7)), (-1, ("a", 7))], 2)
    table(NAMES, [(-1, ("a", 1)), (1, ("a", 2))], 3)
    with drawn(table):
        table(NAMES, [(-1, ("a", 2)), (-1, ("b", 1))], 4)
    assert words(capsys.readouterr().out) == [
        "---",
        "k n",
        "a 1",
        "b 1",
        "---",
        "k n",
        "a 2",
        "b 1",
        "---",
        "(no rows)",
    ]


def test_on_a_terminal_the_table_is_drawn_in_place_and_stays_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    table = CurrentTable(in_place=True)
    with drawn(table):
        assert terminal.lines == []
        table(NAMES, [(1, ("a", 1))], 0)
        assert drawn_now(terminal) == ["k n", "a 1"]
        table(NAMES, [(-1, ("a", 1)), (1, ("a", 2))], 1)
        assert drawn_now(terminal) == ["k n", "a 2"]
    assert words("\n".join(terminal.lines)) == ["now:", "now:", "k n", "a 2"]


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    table = CurrentTable(in_place=True)
    with drawn(table):
        table(NAMES, [(1, (str(number), -1)) for number in range(1, 1001)], 0)
        table(NAMES, [(-2, ("1000", -1))], 1)
        _, *rows, more, defect = drawn_now(terminal)
    assert len(terminal.lines) > MAX_SHOWN
    assert defect.startswith("defect: ")
    assert more == f"… and {1000 - len(rows):,} more"
    assert rows == ["-1 1000 -1", *(f"{number} -1" for number in range(1000 - len(rows) + 1, 1000))]
    assert len(rows) == 24 - 6


def test_too_many_rows_switch_to_changes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = open_terminal(monkeypatch)
    table = CurrentTable(in_place=True, most=2)
    with drawn(table):
        table(NAMES, [(1, ("a", 1)), (1, ("b", 1))], 0)
        table(NAMES, [(1, ("c", 1))], 1)
        table(NAMES, [(-1, ("c", 1))], 2)
    assert words("\n".join(terminal.lines)) == ["k n", "a 1", "b 1", "k n", "+ c 1", "k n", "- c 1"]
    assert capsys.readouterr().err == (
        "displaying changes instead of a table: there are more than 2 distinct rows, too many to keep as a table\n"
    )


def test_too_many_rows_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = CurrentTable(in_place=False, most=1)
    with drawn(table):
        table(NAMES, [(1, ("a", 1))], 0)
        table(NAMES, [(1, ("b", 1))], 1)
    assert words(capsys.readouterr().out) == ["---", "k n", "a 1", "+ b, 1"]


def test_a_resumed_query_displays_changes(capsys: pytest.CaptureFixture[str]) -> None:
    table = CurrentTable(in_place=False)
    table(NAMES, [], 7)
    table(NAMES, [(-1, ("a", 1)), (1, ("a", 2))], 8)
    printed = capsys.readouterr()
    assert printed.out == "- a, 1\n+ a, 2\n"
    assert printed.err == (
        "displaying changes instead of a table: the query resumes from its checkpoint, and rows that it "
        "emitted before are not known\n"
    )


def test_a_query_whose_first_batch_is_empty_has_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    table = CurrentTable(in_place=False)
    table(NAMES, [], 0)
    table(NAMES, [(1, ("a", 1))], 1)
    assert words(capsys.readouterr().out) == ["---", "k n", "a 1"]


def test_a_query_that_computes_with_the_delta_has_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = "SELECT o.id, _tp_delta AS d FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '1' HOUR EMIT CHANGELOG"
    assert show_of(statement(text), View.TABLE, in_place=True) is show_changes
    assert "the query uses _tp_delta in an expression" in capsys.readouterr().err
    assert show_of(statement(text), View.AUTO, in_place=True) is show_changes
    assert capsys.readouterr().err == ""


def test_a_statement_other_than_select_displays_changes() -> None:
    text = "INSERT INTO terminal SELECT count(*) FROM o"
    assert show_of(statement(text), View.TABLE, in_place=True) is show_changes


def test_tables_of_a_run_share_the_terminal_with_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    live = LiveTable(View.AUTO)
    shows = [live.show_of(statement(f"SELECT {what} FROM o")) for what in ("count(*)", "max(i)", "i")]
    with drawing(live):
        for number, show in enumerate(shows):
            show(["n"], [(1, (row,)) for row in range(100 * number, 100 * number + 50)], 0)
        live.update([FakeQuery(), FakeQuery("other")])  # type: ignore[list-item]
        first, second = (24 - 6) // 2 - 6, (24 - 6) // 2 - 6
        assert [line.split()[0] for line in drawn_now(terminal)] == [
            *("n", *map(str, range(50 - first, 50)), "…"),
            *("n", *map(str, range(150 - second, 150)), "…"),
            *("query", "q", "other"),
        ]
    live.end()
    assert [line.split()[0] for line in terminal.lines[-2:]] == ["148", "149"]


def test_plain_lines_print_tables_again(capsys: pytest.CaptureFixture[str]) -> None:
    for asked, marks in ((View.AUTO, 2), (View.CHANGES, 0)):
        show = PlainLines(asked).show_of(statement("SELECT count(*) FROM o"))
        show(["n"], [(1, (1,))], 0)
        show(["n"], [(-1, (1,)), (1, (2,))], 1)
        assert capsys.readouterr().out.count("---") == marks
