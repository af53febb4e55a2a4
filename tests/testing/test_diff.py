"""What a failed step's report says."""

from __future__ import annotations

import math

import pytest

from watersmeet.testing.diff import consolidated, diff_changes, diff_error, diff_step, negative_rows
from watersmeet.testing.notation import Change, Expectation, NotationError

TYPES = ["INT", "DOUBLE"]


def expect(*changes: tuple[int, str, str | None], **checks: int) -> Expectation:
    return Expectation(tuple(Change(weight, (one, two)) for weight, one, two in changes), line=7, **checks)  # type: ignore[arg-type]


def test_equal_multisets_in_any_order() -> None:
    expected = expect((1, "1", "8"), (1, "2", None), (1, "1", "8"), (-1, "3", "NaN"))
    assert diff_step(expected, [(-1, (3, math.nan)), (2, (1, 8.0)), (1, (2, None))], TYPES) is None


def test_what_comes_and_goes_within_a_step_does_not_count() -> None:
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


def test_the_report_does_not_hang_on_the_order_of_arrival() -> None:
    rows = [(1, (2, 1.0)), (1, (1, None)), (-1, (5, 2.0))]
    assert diff_step(expect(), rows, TYPES) == diff_step(expect(), rows[::-1], TYPES)


def test_order_where_it_counts() -> None:
    rows = [(1, (1, 1.0)), (1, (2, 2.0))]
    assert diff_changes(rows, rows, ordered=True) is None
    report = diff_changes(rows, rows[::-1], ordered=True)
    assert report == "the rows are right, their order is not\nrow 1: expected + 1, 1.0, found + 2, 2.0"


def test_checks() -> None:
    expected = Expectation(late={"l": 1, "r": 0}, quarantined={"l": 2}, filtered={"l": 3}, state=4)
    good = {"late": {"l": 1}, "quarantined": {"l": 2}, "filtered": {"l": 3}}
    assert diff_step(expected, [], TYPES, **good, state=4) is None  # type: ignore[arg-type]
    report = diff_step(expected, [], TYPES, late={"r": 5}, state=3)
    assert report is not None
    assert report.splitlines() == [
        "late l: expected 1, found 0",
        "late r: expected 0, found 5",
        "quarantined l: expected 2, found 0",
        "filtered l: expected 3, found 0",
        "state: expected 4, found 3",
    ]


def test_an_expected_cell_that_does_not_fit_names_its_line() -> None:
    with pytest.raises(NotationError, match=r"line 7: 'x' is not a value of type INT"):
        diff_step(expect((1, "x", "1")), [], TYPES)


def test_errors_are_compared_by_their_essential_words() -> None:
    rendered = "Unknown column custmer (line 3, column 8)\nhint: did you mean customer?"
    assert diff_error(["CUSTMER", "line 3", "customer"], rendered) is None
    report = diff_error(["customer", "line 3"], rendered)
    assert report is not None
    assert report.startswith("missing in the error: line 3")
    assert diff_error(["x"], None) == "an error is expected, the script gave none"


def test_consolidation_and_negative_rows() -> None:
    changes = [(1, (1, 1.0)), (1, (2, None)), (-1, (1, 1.0)), (-1, (3, 1.0))]
    assert consolidated(changes) == [(1, (2, None)), (-1, (3, 1.0))]
    assert negative_rows(changes) == [(3, 1.0)]
