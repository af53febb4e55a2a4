from __future__ import annotations

import io
import sys

import pytest

from watersmeet.cli.rows import show_changes, show_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_rows_are_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_changes(["id", "note"], [(1, (1, "a")), (-1, (2, None))])
    assert capsys.readouterr().out == "+ 1, a\n- 2, NULL\n"


def test_rows_are_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    show_changes(["id", "note"], [(1, (1, "[a]")), (-1, (2, None))])
    header, _, first, second = [line.split() for line in terminal.getvalue().splitlines() if line.strip()]
    assert header == ["id", "note"]
    assert first == ["+", "1", "[a]"]
    assert second == ["-", "2", "NULL"]


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["stream"], [])
    assert capsys.readouterr().out == "(no rows)\n"
