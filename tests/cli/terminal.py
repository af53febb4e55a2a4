"""A terminal that records the content of its screen."""

from __future__ import annotations

import io
import re
import sys

import pytest

_WRITTEN = re.compile(r"\x1b\[(?P<number>\??\d*)(?:;\d+)*(?P<command>[A-Za-z])|(?P<char>[\s\S])")


class Terminal(io.StringIO):
    """Interprets the output of rich: lines, cursor movements and erased lines; its height is unlimited."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """Return the visible lines that are not blank."""
        lines, row, column = [""], 0, 0
        for found in _WRITTEN.finditer(self.getvalue()):
            char, command = found["char"], found["command"]
            if char == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif char == "\r":
                column = 0
            elif char is not None:
                lines[row] = f"{lines[row][:column]:{column}}{char}{lines[row][column + 1 :]}"
                column += 1
            elif command == "A":
                row -= int(found["number"] or 1)
            elif command == "K":
                lines[row] = ""
        return [line.strip() for line in lines if line.strip()]


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard output with a terminal of 100 by 24.  Not a fixture, because pytest would capture instead."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    for name, value in {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "100", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    return made
