"""A readable, deterministic difference between the changes a step must bring and those it brought.

A line of the report begins with one of::

               + 1, 8        expected and there
    missing    + 2, NULL     expected, not there
    unexpected - 1, 8        there, not expected

Counts stand in brackets where a row is there more than once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from watersmeet.testing.cells import Row, canonical_row, format_row, parse_row
from watersmeet.testing.notation import Expectation, NotationError

Changes = Sequence[tuple[int, Row]]
"""Output rows with their weights; a weight of +2 is two equal rows inserted."""


def consolidated(changes: Iterable[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """The changes with the weights of equal rows summed and zeros dropped, in order of first appearance."""
    first: dict[object, Row] = {}
    weights: Counter[object] = Counter()
    for weight, row in changes:
        key = canonical_row(row)
        first.setdefault(key, row)
        weights[key] += weight
    return [(weights[key], row) for key, row in first.items() if weights[key]]


def expected_changes(expected: Expectation, type_names: Sequence[str]) -> list[tuple[int, Row]]:
    """The expectation's rows as values, by the query's output types.

    Raises NotationError with the line of the expectation for a cell that does not fit.
    """
    try:
        return [(change.weight, parse_row(change.cells, type_names)) for change in expected.rows]
    except NotationError as error:
        message = f"line {expected.line}: {error.message}"
        raise NotationError(message, detail=error.detail, hint=error.hint) from error


def diff_changes(expected: Changes, actual: Changes, *, ordered: bool = False) -> str | None:
    """None where both bring the same rows (in the same order, if ``ordered``), else a report in plain text.

    Both sides are consolidated first, so a row that comes and goes within the step does not count.
    """
    wanted, brought = consolidated(expected), consolidated(actual)
    wanted_weights = {canonical_row(row): weight for weight, row in wanted}
    brought_weights = {canonical_row(row): weight for weight, row in brought}
    if wanted_weights == brought_weights:
        return _diff_order(_flat(wanted), _flat(brought)) if ordered else None
    rows = {canonical_row(row): row for _, row in [*brought, *wanted]}
    lines: list[str] = []
    missing = unexpected = 0
    for key, row in sorted(rows.items(), key=lambda item: _sort_key(item[1])):
        want, have = wanted_weights.get(key, 0), brought_weights.get(key, 0)
        shared = min(abs(want), abs(have)) if want * have > 0 else 0
        sign = 1 if want > 0 else -1
        lines += _line("", sign * shared, row)
        lines += _line("missing", want - sign * shared, row)
        missing += abs(want - sign * shared)
        lines += _line("unexpected", have - sign * shared, row)
        unexpected += abs(have - sign * shared)
    return "\n".join([f"{missing} missing, {unexpected} unexpected", *lines])


def diff_counts(what: str, expected: dict[str, int], actual: dict[str, int]) -> str | None:
    """None where every count that is expected holds (a stream not in ``actual`` counts 0), else a report.

    ``what`` names the counter: late, quarantined or filtered.
    """
    wrong = [(stream, count) for stream, count in sorted(expected.items()) if actual.get(stream, 0) != count]
    if not wrong:
        return None
    return "\n".join(f"{what} {stream}: expected {count}, found {actual.get(stream, 0)}" for stream, count in wrong)


def diff_step(
    expected: Expectation,
    actual: Changes,
    type_names: Sequence[str],
    *,
    ordered: bool = False,
    late: dict[str, int] | None = None,
    quarantined: dict[str, int] | None = None,
    filtered: dict[str, int] | None = None,
    state: int | None = None,
) -> str | None:
    """None where the step brought what it must and every stated check holds, else a report in plain text.

    Counters are cumulative by stream, ``state`` is the number of live rows in all operators.
    Raises NotationError where an expected cell does not fit the query's output types.
    """
    found = [
        diff_changes(expected_changes(expected, type_names), actual, ordered=ordered),
        diff_counts("late", expected.late, late or {}),
        diff_counts("quarantined", expected.quarantined, quarantined or {}),
        diff_counts("filtered", expected.filtered, filtered or {}),
    ]
    if expected.state is not None and expected.state != state:
        found.append(f"state: expected {expected.state}, found {state}")
    reports = [report for report in found if report]
    return "\n".join(reports) if reports else None


def diff_error(expected: Sequence[str], rendered: str | None) -> str | None:
    """None where every line of ``expected`` occurs in the rendered error, in order and without regard to case.

    ``rendered`` is None where the script gave no error.
    """
    if rendered is None:
        return "an error is expected, the script gave none"
    at = 0
    for line in expected:
        found = rendered.lower().find(line.lower(), at)
        if found < 0:
            return f"missing in the error: {line}\nfound:\n{rendered}"
        at = found + len(line)
    return None


def negative_rows(changes: Iterable[tuple[int, Row]]) -> list[Row]:
    """Rows whose accumulated weight is below zero: deleted more often than inserted. Always empty in a right run."""
    return [row for weight, row in consolidated(changes) if weight < 0]


def _diff_order(wanted: list[tuple[int, Row]], brought: list[tuple[int, Row]]) -> str | None:
    pairs = list(zip_longest(wanted, brought))
    for number, (want, have) in enumerate(pairs, start=1):
        if want is None or have is None or _key(want) != _key(have):
            shown = [f"row {number}: expected {_show(want)}, found {_show(have)}"]
            return "\n".join(["the rows are right, their order is not", *shown])
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
    """Numbers by value, all else by text, NULLs last: the same order whatever came first."""
    keys: list[tuple[int, float, str]] = []
    for value in row:
        if value is None:
            keys.append((2, 0.0, ""))
        elif isinstance(value, int | float) and value == value:
            keys.append((0, float(value), ""))
        else:
            keys.append((1, 0.0, format_row((value,))))
    return tuple(keys)
