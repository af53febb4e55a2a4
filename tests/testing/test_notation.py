"""The parser of the notation, and the lines of its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.testing.case import Change, Compare, Control, ControlKind, InputBlock, NotationError
from watersmeet.testing.notation import parse_cases, read_cases

CASE_FILES = sorted((Path(__file__).parent.parent / "cases").glob("*.wmt"))

SCRIPT = "CREATE STREAM l (id INT);\nSELECT id FROM l;"

WHOLE = """-- a file may begin with comments

=== a case [as written]
-- SQL comments are part of the script
CREATE STREAM l (id INT, v STRING);
SELECT id FROM l;

-- before a step
>>> l
1, 'a, b'
-- between rows
NULL, ∅

>>> r raw
{"id": 1}
-- this is a record
<<<
+ 1, "say ""hi"" twice"
- -1, NULL
state 3
late l 1
quarantined r 2
filtered l 0
>>> advance l 2020-01-01 00:00:00
>>> idle r
>>> restart
<<<

>>> end
<<<
=== another
SELECT nonsense;
!!!
nonsense
-- not part of it
line 1
"""


def test_a_whole_file() -> None:
    first, second = parse_cases(WHOLE, "cases/x.wmt")

    assert (first.title, first.line, first.path, first.as_written) == ("a case", 3, "cases/x.wmt", True)
    assert first.script.splitlines() == [
        "-- SQL comments are part of the script",
        "CREATE STREAM l (id INT, v STRING);",
        "SELECT id FROM l;",
        "",
        "-- before a step",
    ]
    assert first.error is None
    assert first.compare is Compare.STEPS
    one, two, three = first.steps
    assert one.inputs == (
        InputBlock("l", cells=(("1", "a, b"), (None, None)), line=9),
        InputBlock("r", raw=('{"id": 1}', "-- this is a record"), line=14),
    )
    assert one.controls == ()
    assert one.line == 9
    assert one.expected.rows == (Change(1, ("1", 'say "hi" twice')), Change(-1, ("-1", None)))
    assert one.expected.state == 3
    assert one.expected.counts == {("late", "l"): 1, ("quarantined", "r"): 2, ("filtered", "l"): 0}
    assert [block.lines for block in one.inputs] == [(10, 12), (15, 16)]
    assert [change.line for change in one.expected.rows] == [18, 19]
    assert one.expected.line == 17
    assert two.controls == (
        Control(ControlKind.ADVANCE, "l", "2020-01-01 00:00:00"),
        Control(ControlKind.IDLE, "r"),
        Control(ControlKind.RESTART),
    )
    assert two.expected.rows == ()
    assert two.expected.state is None
    assert three.controls == (Control(ControlKind.END),)

    assert [control.line for control in two.controls] == [24, 25, 26]

    assert second.title == "another"
    assert second.steps == ()
    assert second.error == ("nonsense", "line 1")
    assert not second.as_written


def test_line_n_of_the_script_is_line_n_after_the_title() -> None:
    case = parse_cases(WHOLE)[0]
    assert WHOLE.splitlines()[case.line + 2 - 1] == case.script.splitlines()[1]


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("SELECT 1;", 1, "=== TITLE"),
        ("", 1, "no case"),
        ("-- only a comment\n\n", 1, "no case"),
        ("===\n" + SCRIPT, 1, "title"),
        ("=== t\n\n>>> l\n1\n<<<\n", 1, "script"),
        (f"=== t\n{SCRIPT}\n", 1, "steps"),
        (f"=== t\n{SCRIPT}\n>>> l\n1\n", 4, "no expectation"),
        (f"=== t\n{SCRIPT}\n<<<\n+ 1\n", 4, "needs an input"),
        (f"=== t\n{SCRIPT}\n >>> l\n<<<\n", 4, "'>>>' must be at the start of its line"),
        (f"=== t\n{SCRIPT}\n>>> l\n1\n\t<<<\n", 6, "'<<<' must be at the start of its line"),
        (f"=== t\n{SCRIPT}\n>>>\n<<<\n", 4, "'>>> STREAM'"),
        (f"=== t\n{SCRIPT}\n>>> l rows\n<<<\n", 4, "'>>> STREAM'"),
        (f"=== t\n{SCRIPT}\n>>> idle\n<<<\n", 4, "'>>> idle STREAM'"),
        (f"=== t\n{SCRIPT}\n>>> advance l\n<<<\n", 4, "'>>> advance STREAM TIME'"),
        (f"=== t\n{SCRIPT}\n>>> end now\n<<<\n", 4, "'>>> end'"),
        (f"=== t\n{SCRIPT}\n>>> l\n'1\n<<<\n", 5, "not closed"),
        (f"=== t\n{SCRIPT}\n>>> l\n'1' 2\n<<<\n", 5, "a comma is expected"),
        (f"=== t\n{SCRIPT}\n>>> l\n1\n<<< now\n", 6, "must be alone"),
        (f"=== t\n{SCRIPT}\n>>> l\n1\n<<<\n1, 2\n", 7, "'+ cells'"),
        (f"=== t\n{SCRIPT}\n>>> l\n1\n<<<\nstate -1\n", 7, "'state N'"),
        (f"=== t\n{SCRIPT}\n>>> l\n1\n<<<\nstate 1\nstate 2\n", 8, "'state N'"),
        (f"=== t\n{SCRIPT}\n>>> l\n1\n<<<\nlate l 1\nlate l 2\n", 8, "twice"),
        (f"=== t\n{SCRIPT}\n>>> end\n<<<\n>>> l\n1\n<<<\n", 6, "nothing can follow"),
        (f"=== t\n{SCRIPT}\n!!!\n", 4, "at least one line"),
        (f"=== t\n{SCRIPT}\n!!!\noops\n>>> l\n", 6, "not both"),
        (f"=== t\n{SCRIPT}\n!!!\noops\n=== t\n{SCRIPT}\n!!!\noops\n", 6, "line 1 has the same title"),
    ],
)
def test_errors_name_file_and_line(text: str, line: int, word: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_cases(text, "x.wmt")
    assert caught.value.message.startswith(f"x.wmt:{line}: ")
    assert caught.value.line == line
    assert word in str(caught.value)


def test_a_row_can_start_with_a_sign() -> None:
    (case,) = parse_cases(f"=== t\n{SCRIPT}\n>>> l\n- 1, a\n+ 2, b\n-3, c\n>>> l\n+4, d\n>>> l raw\n- 5\n<<<\n")
    signed, plain, raw = case.steps[0].inputs
    assert signed.cells == (("1", "a"), ("2", "b"), ("-3", "c"))
    assert signed.deltas == (-1, 1, None)
    assert (plain.cells, plain.deltas) == ((("+4", "d"),), ())
    assert (raw.raw, raw.deltas) == (("- 5",), ())


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_and_byte_order_marks_of_other_systems(tmp_path: Path, end: str) -> None:
    path = tmp_path / "x.wmt"
    path.write_bytes(b"\xef\xbb\xbf" + WHOLE.replace("\n", end).encode())
    assert read_cases(path) == parse_cases(WHOLE, str(path))
    assert parse_cases(WHOLE.replace("\n", end)) == parse_cases(WHOLE)


def test_only_newlines_end_a_line() -> None:
    (case,) = parse_cases(f'=== t\n{SCRIPT}\n>>> l raw\n{{"id": "\u2028\x85"}}\n<<<\nstate 0')
    assert case.steps[0].inputs[0].raw == ('{"id": "\u2028\x85"}',)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotationError, match=r"none\.wmt cannot be read: No such file"):
        read_cases(tmp_path / "none.wmt")
    with pytest.raises(NotationError, match="cannot be read: Is a directory"):
        read_cases(tmp_path)
    (tmp_path / "x.wmt").write_bytes("=== gr\xfcn".encode("latin-1"))
    with pytest.raises(NotationError, match=r"x\.wmt is not UTF-8 text: byte 6"):
        read_cases(tmp_path / "x.wmt")


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_the_projects_own_files_parse(path: Path) -> None:
    assert read_cases(path)


def test_titles_are_unique_over_all_files() -> None:
    titles = [case.title for path in CASE_FILES for case in read_cases(path)]
    assert len(titles) == len(set(titles))
