"""Regrouping the input of a case changes its steps, never its rows or its total."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.testing.case import Case, Change, Compare, Control, ControlKind
from watersmeet.testing.notation import parse_cases, read_cases
from watersmeet.testing.regroup import all_at_once, row_by_row, total, variants, with_restarts

CASES = [case for path in sorted((Path(__file__).parent.parent / "cases").glob("*.wmt")) for case in read_cases(path)]

TEXT = """=== a case
SELECT 1;
>>> l
1, 5
2, 6
>>> r raw
{}
<<<
+ 1, NULL
+ 2, NULL
late l 0
>>> advance l 9
>>> restart
>>> r
1, 7
<<<
- 1, NULL
+ 1, 7
state 3
>>> end
<<<
"""


def case() -> Case:
    return parse_cases(TEXT)[0]


def rows_of(case: Case) -> list[tuple[str, object]]:
    return [(block.stream, row) for step in case.steps for block in step.inputs for row in (*block.cells, *block.raw)]


def test_all_at_once() -> None:
    (step,) = all_at_once(case()).steps
    assert [block.stream for block in step.inputs] == ["l", "r", "r"]
    assert step.controls == (Control(ControlKind.ADVANCE, "l", "9"), Control(ControlKind.END))
    assert step.expected.rows == (Change(1, ("2", None)), Change(1, ("1", "7")))
    assert step.expected.counts == {}
    assert step.expected.state is None
    assert all_at_once(case()).compare is Compare.TOTAL


def test_row_by_row() -> None:
    small = row_by_row(case())
    assert small.compare is Compare.TOTAL
    kinds = [step.controls[0].kind.value if step.controls else step.inputs[0].stream for step in small.steps]
    assert kinds == ["l", "l", "r", "restart", "r", "advance", "end"]
    assert all(not step.expected.rows for step in small.steps[:-1])
    assert [block.lines for step in small.steps for block in step.inputs] == [(4,), (5,), (7,), (15,)]
    assert small.steps[-1].expected == total(case())


def test_restarts_keep_inputs_and_expectations() -> None:
    restarted = with_restarts(case())
    restart = Control(ControlKind.RESTART)
    assert [step.controls.count(restart) for step in restarted.steps] == [0, 1, 1]
    assert [step.expected for step in restarted.steps] == [step.expected for step in case().steps]
    assert restarted.compare is Compare.STEPS


def test_variants() -> None:
    assert [name for name, _ in variants(case())] == [
        "as written", "restarts", "all at once", "row by row", "row by row, restarts",
    ]  # fmt: skip
    as_written = parse_cases(TEXT.replace("=== a case", "=== a case [as written]"))[0]
    assert [name for name, _ in variants(as_written)] == ["as written", "restarts"]
    error = parse_cases("=== e\nSELECT 1;\n!!!\noops\n")[0]
    assert [name for name, _ in variants(error)] == ["as written"]


@pytest.mark.parametrize("own", [pytest.param(case, id=case.title) for case in CASES if case.error is None])
def test_the_projects_own_cases_keep_rows_and_totals(own: Case) -> None:
    for _, variant in variants(own):
        assert rows_of(variant) == rows_of(own)
        assert total(variant).rows == total(own).rows
        assert own.as_written or all(change.weight > 0 for change in total(variant).rows)
