from __future__ import annotations

import pytest

from tests.cli.terminal import open_terminal
from watersmeet.cli.live import Shown
from watersmeet.cli.rows import can_draw, current_table, drawing, out, show_changes, show_table


def test_rows_are_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_changes(["id", "note"], [(1, (1, "a")), (-1, (2, None))], 0)
    show_changes(["id", "note"], [], 1)
    assert capsys.readouterr().out == "+ 1, a\n- 2, NULL\n"


def test_rows_are_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    show_changes(["id", "note"], [(1, (1, "[a]")), (-1, (2, None))], 0)
    show_changes(["id", "note"], [], 1)
    header, _, first, second = [line.split() for line in terminal.lines]
    assert header == ["id", "note"]
    assert first == ["+", "1", "[a]"]
    assert second == ["-", "2", "NULL"]


def test_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["stream"], [])
    assert capsys.readouterr().out == "(no rows)\n"


def test_lines_printed_while_drawing_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with drawing("drawn in place"):
        show_changes(["id"], [(1, (7,))], 0)
        assert [line.split() for line in terminal.lines[2:]] == [["+", "7"], ["drawn", "in", "place"]]
    assert terminal.lines[-1].split() == ["+", "7"]


def test_a_dumb_terminal_draws_nothing_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)
    assert can_draw()
    monkeypatch.setenv("TERM", "dumb")
    assert not can_draw()


@pytest.mark.parametrize("most", [None, 5])
def test_current_rows_have_multiplicities(capsys: pytest.CaptureFixture[str], most: int | None) -> None:
    out().print(current_table(["k", "n"], Shown(((-1, ("c", 9)), (3, ("b", None)), (1, ("a", 5))), 3, 1), most))
    header, _, *rows, defect = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert header == ["k", "n"]
    assert rows == [["a", "5"], ["×3", "b", "NULL"], ["-1", "c", "9"]]
    assert " ".join(defect) == "defect: rows retracted more often than inserted: 1; please report this query"


def test_omitted_current_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    shown = Shown(tuple((1, (number, f"two\nlines, {'wide ' * 30}")) for number in range(100)), 1334)
    out().print(current_table(["k", "note"], shown, 3))
    _, _, *rows, more = terminal.lines
    assert [row.split()[:3] for row in rows] == [[str(number), "two", "lines,"] for number in range(3)]
    assert more == "… and 1,331 more"
