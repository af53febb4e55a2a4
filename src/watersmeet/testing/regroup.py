"""Variants of a case that split its input differently: if no row becomes late, the total result must not change.

Each function returns a new case; none reads the SQL.  A case ``[as written]`` (it counts late rows, or depends on
where batches end) is only restarted, never regrouped.  The same applies to a case that changes an external table after
its first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watersmeet.testing.case import Case, Change, Compare, Control, ControlKind, Expectation, Step
from watersmeet.testing.cells import consolidate

RESTART = Control(ControlKind.RESTART)


def total(case: Case) -> Expectation:
    """Return the expected total of all steps, without their checks, which only hold for the steps as written."""
    changes = ((change.weight, change.cells) for step in case.steps for change in step.expected.rows)
    rows = tuple(Change(weight, cells) for weight, cells in consolidate(changes))
    return Expectation(rows, line=case.steps[-1].expected.line)


def all_at_once(case: Case) -> Case:
    """Return the case as one step with all rows, the controls, and the total; restarts are dropped."""
    controls = [control for step in case.steps for control in step.controls if control != RESTART]
    step = Step(
        inputs=tuple(block for step in case.steps for block in step.inputs),
        controls=tuple(dict.fromkeys(controls)),
        expected=total(case),
        line=case.steps[0].line,
    )
    return replace(case, steps=(step,), compare=Compare.TOTAL)


def row_by_row(case: Case) -> Case:
    """Return a step for each row, record and control, in the order written; only the total is compared."""
    steps = [small for step in case.steps for small in _single_rows(step)]
    steps[-1] = replace(steps[-1], expected=total(case))
    return replace(case, steps=tuple(steps), compare=Compare.TOTAL)


def with_restarts(case: Case) -> Case:
    """Return the same steps and expectations, with a restart before every step but the first."""
    first, *rest = case.steps
    restarted = [
        step if RESTART in step.controls else replace(step, controls=(RESTART, *step.controls)) for step in rest
    ]
    return replace(case, steps=(first, *restarted))


def variants(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield all variants of a case to run, each with a name; a case that expects an error has only one."""
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
