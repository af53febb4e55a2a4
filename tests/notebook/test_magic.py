"""``%%watersmeet`` in an IPython shell: options, errors without traces, variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from watersmeet.errors import BindError, Position, WatersmeetError
from watersmeet.notebook.failures import CellError, cell_error


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    InteractiveShell.clear_instance()
    found = InteractiveShell.instance()
    found.run_line_magic("load_ext", "watersmeet.notebook")
    yield found
    InteractiveShell.clear_instance()


def shown(shell: InteractiveShell, source: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a cell that fails prints."""
    result = shell.run_cell(source)
    assert not result.success
    found = capsys.readouterr()
    return re.sub(r"\x1b\[[0-9;]*m", "", found.out + found.err)


def test_a_position_is_marked_in_the_cell() -> None:
    error = cell_error(
        BindError("a has no column idd", hint="did you mean id?", position=Position(2, 8)), "SELECT\n  a, b.idd"
    )
    assert (
        str(error) == "a has no column idd (line 2, column 8)\n2 |   a, b.idd\n  |        ^^^\nhint: did you mean id?"
    )


def test_a_position_that_is_marked_stays_and_other_details_follow() -> None:
    cell = "SELECT x"
    marked = cell_error(WatersmeetError("m", detail="1 | SELECT x\n  |        ^", position=Position(1, 8)), cell)
    assert str(marked).count("1 | ") == 1
    listed = cell_error(WatersmeetError("m", detail="allowed: a, b", position=Position(1, 8)), cell)
    assert str(listed) == "m (line 1, column 8)\n1 | SELECT x\n  |        ^\nallowed: a, b"
    assert str(cell_error(WatersmeetError("m", position=Position(9, 1)), cell)) == "m (line 9, column 1)"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--into 'a", "%%watersmeet --into 'a cannot be read: No closing quotation"),
        ("--into 1st", "1st is not the name of a Python variable"),
        ("--session for", "for is not the name of a Python variable"),
        ("--into session", "session is the variable of the session"),
        ("--seconds -1", "--seconds -1 is no length of time"),
        ("--seconds nan", "--seconds nan is no length of time"),
        ("--seconds inf", "--seconds inf is no length of time"),
        ("--bounded --real-time", "a query in real time has no end"),
        ("--session taken", "the variable taken is no session of Watersmeet, but of type int"),
    ],
)
def test_wrong_options_are_text_without_a_trace(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    shell.user_ns["taken"] = 1
    text = shown(shell, f"%%watersmeet {line}\nSHOW STREAMS", capsys)
    assert text.startswith(said), text
    assert "Traceback" not in text
    assert ".py" not in text


def test_unknown_options_and_help_are_those_of_ipython(shell: InteractiveShell) -> None:
    with pytest.raises(UsageError, match="unrecognized arguments: --what"):
        shell.run_cell_magic("watersmeet", "--what", "SHOW STREAMS")
    found = shell.find_cell_magic("watersmeet")
    assert found is not None
    assert "--real-time" in (found.__doc__ or "")


def test_a_failed_cell_counts_as_failed(shell: InteractiveShell) -> None:
    result = shell.run_cell("%%watersmeet --into 1st\nSHOW STREAMS")
    assert isinstance(result.error_in_exec, CellError)
