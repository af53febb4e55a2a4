"""A readable, deterministic difference between the expected changes of a step and the actual ones.

A line of the report starts with one of::

               + 1, 8        expected and emitted
    missing    + 2, NULL     expected, not emitted
    unexpected - 1, 8        emitted, not expected

A count in brackets follows a row that occurs more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from watersmeet.testing.case import Expectation, at_line
from watersmeet.testing.cells import Row, canonical_row, consolidate, format_row, parse_row

Changes = Sequence[tuple[int, Row]]
"""Output rows with their weights; a weight of +2 is two equal rows inserted."""


def expected_changes(expected: Expectation, type_names: Sequence[str]) -> list[tuple[int, Row]]:
    """Return the expected rows as values of the query's output types.

    Raises NotationError, with the row's line, for a cell that does not fit.
    """
    found = []
    for change in expected.rows:
        with at_line(change.line or expected.line):
            found.append((change.weight, parse_row(change.cells, type_names)))
    return found


def diff_changes(expected: Changes, actual: Changes, *, ordered: bool = False) -> str | None:
    """Return None if both have the same rows (in the same order, if ``ordered``), else a report in plain text.

    Both sides are consolidated first, so a row that the step inserts and deletes again does not count.
    """
    wanted, emitted = consolidate(expected), consolidate(actual)
    wanted_weights = {canonical_row(row): weight for weight, row in wanted}
    emitted_weights = {canonical_row(row): weight for weight, row in emitted}
    if wanted_weights == emitted_weights:
        return _diff_order(_flat(wanted), _flat(emitted)) if ordered else None
    rows = {canonical_row(row): row for _, row in [*emitted, *wanted]}
    lines: list[str] = []
    missing = unexpected = 0
    for key, row in sorted(rows.items(), key=lambda item: _sort_key(item[1])):
        want, have = wanted_weights.get(key, 0), emitted_weights.get(key, 0)
        shared = min(abs(want), abs(have)) if want * have > 0 else 0
        sign = 1 if want > 0 else -1
        lines += _line("", sign * shared, row)
        lines += _line("missing", want - sign * shared, row)
        missing += abs(want - sign * shared)
        lines += _line("unexpected", have - sign * shared, row)
        unexpected += abs(have - sign * shared)
    return "\n".join([f"{missing} missing, {unexpected} unexpected", *lines])


def diff_step(
    expected: Expectation,
    actual: Changes,
    type_names: Sequence[str],
    *,
    ordered: bool = False,
    counts: Mapping[tuple[str, str], int] | None = None,
    state: int | None = None,
) -> str | None:
    """Return None if the step has the expected changes and all its checks hold, else a report in plain text.

    ``counts`` are cumulative, by counter and stream (0 if missing); ``state`` is the number of live rows in all
    operators.  Raises NotationError for an expected cell that does not fit the query's output types.
    """
    rows = diff_changes(expected_changes(expected, type_names), actual, ordered=ordered)
    reports = [] if rows is None else [rows]
    for (what, stream), wanted in expected.counts.items():
        found = (counts or {}).get((what, stream), 0)
        if found != wanted:
            reports.append(f"{what} {stream}: expected {wanted}, found {found}")
    if expected.state is not None and expected.state != state:
        reports.append(f"state: expected {expected.state}, found {state}")
    return "\n".join(reports) or None


def diff_error(expected: Sequence[str], rendered: str | None) -> str | None:
    """Return None if every line of ``expected`` occurs in the rendered error, in order, else a report in plain text.

    ``rendered`` is None if the script raised no error.
    """
    if rendered is None:
        return "\n".join(["the script raises no error, but this one was expected:", *expected])
    at = 0
    for line in expected:
        found = rendered.find(line, at)
        if found < 0:
            return f"missing in the error: {line}\nthe error is:\n{rendered}"
        at = found + len(line)
    return None


def negative_rows(changes: Iterable[tuple[int, Row]]) -> list[Row]:
    """Return the rows deleted more often than inserted.  A correct run has none."""
    return [row for weight, row in consolidate(changes) if weight < 0]


def _diff_order(wanted: list[tuple[int, Row]], emitted: list[tuple[int, Row]]) -> str | None:
    pairs = list(zip_longest(wanted, emitted))
    for number, (want, have) in enumerate(pairs, start=1):
        if want is None or have is None or _key(want) != _key(have):
            shown = [f"row {number}: expected {_show(want)}, found {_show(have)}"]
            return "\n".join(["the rows are correct, but not in the expected order", *shown])
    return None


def _flat(changes: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    return [(1 if weight > 0 else -1, row) for weight, row in changes for _ in range(abs(weight))]


def _key(change: tuple[int, Row]) -> object:
    return change[0], canonical_row(change[1])


def _show(change: tuple[int, Row] | None) -> str:
    return "nothing" if change is None else f"{'+' if change[0] > 0 else '-'} {format_row(change[1])}"


def _line(mark: str, weight: int, row: Row) -> list[str]:
    if not weight:
        return []
    times = f" [{abs(weight)} times]" if abs(weight) > 1 else ""
    return [f"{mark:<10} {_show((weight, row))}{times}"]


def _sort_key(row: Row) -> tuple[tuple[int, float, str], ...]:
    """Sort numbers by value, anything else by text, NULLs last: an order that does not depend on the input's."""
    keys: list[tuple[int, float, str]] = []
    for value in row:
        if value is None:
            keys.append((2, 0.0, ""))
        elif isinstance(value, int | float) and value == value:
            keys.append((0, float(value), ""))
        else:
            keys.append((1, 0.0, format_row((value,))))
    return tuple(keys)
