"""The same case with its input cut otherwise: where no row becomes late, the consolidated result must not change.

Each function takes a case and gives a new one; none looks at the SQL. A case ``[as written]`` (late counts, or a
meaning that hangs on where the batches end) is not regrouped, only restarted; nor is one that changes an outside table
after its first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watersmeet.testing.case import Case, Change, Compare, Control, ControlKind, Expectation, Step
from watersmeet.testing.cells import consolidate

RESTART = Control(ControlKind.RESTART)


def total(case: Case) -> Expectation:
    """What all steps together must bring, without the checks, which hold only for the steps as written."""
    changes = ((change.weight, change.cells) for step in case.steps for change in step.expected.rows)
    rows = tuple(Change(weight, cells) for weight, cells in consolidate(changes))
    return Expectation(rows, line=case.steps[-1].expected.line)


def all_at_once(case: Case) -> Case:
    """One step with all rows, the controls at its end, and the total; restarts fall away."""
    controls = [control for step in case.steps for control in step.controls if control != RESTART]
    step = Step(
        inputs=tuple(block for step in case.steps for block in step.inputs),
        controls=tuple(dict.fromkeys(controls)),
        expected=total(case),
        line=case.steps[0].line,
    )
    return replace(case, steps=(step,), compare=Compare.TOTAL)


def row_by_row(case: Case) -> Case:
    """A step for each row or record, in the order written, and one for each control; only the total is compared."""
    steps = [small for step in case.steps for small in _single_rows(step)]
    steps[-1] = replace(steps[-1], expected=total(case))
    return replace(case, steps=tuple(steps), compare=Compare.TOTAL)


def with_restarts(case: Case) -> Case:
    """The same steps with a restart before each but the first; the expectations stay."""
    first, *rest = case.steps
    restarted = [
        step if RESTART in step.controls else replace(step, controls=(RESTART, *step.controls)) for step in rest
    ]
    return replace(case, steps=(first, *restarted))


def variants(case: Case) -> Iterator[tuple[str, Case]]:
    """The case in all the ways it is to be run, each with a name; a case that expects an error has one way."""
    yield "as written", case
    if case.error is not None:
        return
    yield "restarts", with_restarts(case)
    if case.as_written or any(block.is_table for step in case.steps[1:] for block in step.inputs):
        return
    yield "all at once", all_at_once(case)
    yield "row by row", row_by_row(case)
    yield "row by row, restarts", with_restarts(row_by_row(case))


def _single_rows(step: Step) -> Iterator[Step]:
    nothing = Expectation(line=step.expected.line)
    if RESTART in step.controls:
        yield Step((), (RESTART,), nothing, step.line)
    if tables := tuple(block for block in step.inputs if block.is_table):
        yield Step(tables, (), nothing, step.line)
    for block in step.inputs:
        if block.is_table:
            continue
        for i in range(len(block.lines)):
            one = slice(i, i + 1)
            row = replace(
                block, cells=block.cells[one], deltas=block.deltas[one], raw=block.raw[one], lines=block.lines[one]
            )
            yield Step((row,), (), nothing, *row.lines)
    for control in step.controls:
        if control != RESTART:
            yield Step((), (control,), nothing, control.line)
