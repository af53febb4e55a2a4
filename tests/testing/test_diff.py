"""Reports on failed steps."""

from __future__ import annotations

import math

import pytest

from watersmeet.testing.case import Change, Expectation, NotationError
from watersmeet.testing.diff import diff_changes, diff_error, diff_step, negative_rows

TYPES = ["INT", "DOUBLE"]


def expect(*changes: tuple[int, str, str | None]) -> Expectation:
    rows = tuple(Change(weight, (one, two), line) for line, (weight, one, two) in enumerate(changes, start=8))
    return Expectation(rows, line=7)


def test_equal_multisets_in_any_order() -> None:
    expected = expect((1, "1", "8"), (1, "2", None), (1, "1", "8"), (-1, "3", "NaN"))
    assert diff_step(expected, [(-1, (3, math.nan)), (2, (1, 8.0)), (1, (2, None))], TYPES) is None


def test_rows_inserted_and_deleted_in_a_step_do_not_count() -> None:
    assert diff_step(expect(), [(1, (1, 1.0)), (-1, (1, 1.0))], TYPES) is None


def test_missing_and_unexpected_rows_are_marked_and_counted() -> None:
    expected = expect((1, "1", "8"), (1, "2", None), (1, "10", "1"), (1, "10", "1"))
    report = diff_step(expected, [(1, (1, 8.0)), (-1, (2, None)), (3, (9, 0.5)), (1, (10, 1.0))], TYPES)
    assert report is not None
    assert report.splitlines() == [
        "2 missing, 4 unexpected",
        "           + 1, 8.0",
        "missing    + 2, NULL",
        "unexpected - 2, NULL",
        "unexpected + 9, 0.5 [3 times]",
        "           + 10, 1.0",
        "missing    + 10, 1.0",
    ]


def test_the_report_does_not_depend_on_the_order_of_arrival() -> None:
    rows = [(1, (2, 1.0)), (1, (1, None)), (-1, (5, 2.0))]
    assert diff_step(expect(), rows, TYPES) == diff_step(expect(), rows[::-1], TYPES)


def test_differences_in_order() -> None:
    rows = [(1, (1, 1.0)), (1, (2, 2.0))]
    assert diff_changes(rows, rows, ordered=True) is None
    report = diff_changes(rows, rows[::-1], ordered=True)
    assert report == "the rows are correct, but not in the expected order\nrow 1: expected + 1, 1.0, found + 2, 2.0"


def test_checks() -> None:
    expected = Expectation(counts={("late", "l"): 1, ("late", "r"): 0, ("quarantined", "l"): 2}, state=4)
    assert diff_step(expected, [], TYPES, counts={("late", "l"): 1, ("quarantined", "l"): 2}, state=4) is None
    report = diff_step(expected, [], TYPES, counts={("late", "r"): 5}, state=3)
    assert report is not None
    assert report.splitlines() == [
        "late l: expected 1, found 0",
        "late r: expected 0, found 5",
        "quarantined l: expected 2, found 0",
        "state: expected 4, found 3",
    ]


def test_an_expected_cell_that_does_not_fit_names_its_line() -> None:
    with pytest.raises(NotationError, match="'x' is not a value of type INT") as caught:
        diff_step(expect((1, "1", "1"), (1, "x", "1")), [], TYPES)
    assert caught.value.line == 9


def test_errors_are_compared_by_their_essential_words() -> None:
    rendered = "Unknown column custmer (line 3, column 8)\nhint: did you mean customer?"
    assert diff_error(["custmer", "line 3", "customer"], rendered) is None
    assert diff_error(["customer", "line 3"], rendered) == f"missing in the error: line 3\nthe error is:\n{rendered}"
    assert diff_error(["CUSTMER"], rendered) is not None
    assert diff_error(["x", "y"], None) == "the script raises no error, but this one was expected:\nx\ny"


def test_negative_rows() -> None:
    changes = [(1, (1, 1.0)), (1, (2, None)), (-1, (1, 1.0)), (-1, (3, 1.0))]
    assert negative_rows(changes) == [(3, 1.0)]
