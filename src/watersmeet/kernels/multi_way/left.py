"""The terms of a step where some joins are left ones, as DuckDB SQL (join.py says what they compute)."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.kernels.api import quote
from watersmeet.kernels.multi_way.rows import StepRows


def terms(rows: StepRows) -> Iterator[str]:
    """Yield SQL for the results that each input is the first to have something new for: a row, or a padding."""
    for first, input in enumerate(rows.match.inputs):
        if rows.new[first].num_rows and (joined := _joined(rows, first, pads=False)) is not None:
            yield joined
        if input.optional and first in rows.due and (joined := _joined(rows, first, pads=True)) is not None:
            yield joined


def _joined(rows: StepRows, first: int, *, pads: bool) -> str | None:
    """Return SQL for results of old rows before ``first``, of a new one of it, and of any rows after it.

    With ``pads``, the results lack a row of ``first``, and could have had one until this step.  None where there can be
    no result.  Inputs are joined as written: a row that lacks one is padded before it meets the next.
    """
    match, text = rows.match, ""
    for number in range(len(match.inputs)):
        found = rows.sql(number, is_old=number < first, is_new=number == first and not pads)
        if pads and number == 0:
            found = match.rows_sql(0, rows.due[first])
        must_match = _must_match(rows, number, first, pads=pads)
        if found is None and must_match:
            return None
        found = found or f"{match.rows_sql(number, rows.fresh[number])} WHERE FALSE"
        on = match.condition_sql(range(number), number)
        if number == 0:
            text = f"FROM ({found})"
        elif must_match:
            text += f" JOIN ({found}) ON {on}"
        else:
            kept = _kept(rows, number, is_old=number < first, is_due=number == first)
            padded = f"SELECT * {text} LEFT JOIN ({found}) ON {on} WHERE {kept}"
            if any(_must_match(rows, later, first, pads=pads) for later in range(number + 1, len(match.inputs))):
                # DuckDB 2.0 would move conditions of that join into this one, and fail if a column is always NULL
                padded = f"WITH padded AS MATERIALIZED ({padded}) SELECT * FROM padded"
            text = f"FROM ({padded})"
    return f"SELECT {match.output_sql} {text}"


def _must_match(rows: StepRows, input: int, first: int, *, pads: bool) -> bool:
    """Return whether results that ``first`` is the first to have something new for must have a row of an input."""
    return not rows.match.inputs[input].optional or (input == first and not pads)


def _kept(rows: StepRows, input: int, *, is_old: bool, is_due: bool) -> str:
    """Return which rows stay after a LEFT JOIN: those that match, and those that are padded for good."""
    lacks = f"{quote(rows.match.inputs[input].time)} IS NULL"
    frontiers = rows.frontiers.before, rows.frontiers.after
    before, after = (rows.match.is_final_sql(input, frontier) for frontier in frontiers)
    if is_due:
        return f"{lacks} AND {after} AND NOT {before}"
    return f"NOT {lacks} OR {before if is_old else after}"
