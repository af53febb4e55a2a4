"""The rows of a running SELECT, as its changes leave them."""

from __future__ import annotations

import re

import pytest

from watersmeet.errors import LimitError
from watersmeet.notebook.query_rows import QueryRows


def cells(rows: QueryRows) -> list[str]:
    return re.findall(r"<td.*?>(.*?)</td>", rows._repr_html_())


def test_changes_are_applied_and_rows_are_sorted_and_repeated() -> None:
    rows = QueryRows()
    rows(["k", "n"], [(1, ("b", 1)), (1, ("a", 1)), (1, ("a", 1))], 0)
    rows(["k", "n"], [(-1, ("b", 1)), (1, ("b", 2))], 1)
    assert cells(rows) == ["a", "1", "a", "1", "b", "2"]
    assert rows.to_arrow().to_pydict() == {"k": ["a", "a", "b"], "n": [1, 1, 2]}
    assert rows.to_pandas()["n"].tolist() == rows.to_polars()["n"].to_list() == [1, 1, 2]


def test_changes_stay_in_their_order() -> None:
    rows = QueryRows(as_changes=True)
    rows(["n"], [(-1, (2,)), (1, (1,))], 0)
    rows(["n"], [(1, (2,))], 1)
    assert rows.to_arrow().to_pydict() == {"change": [-1, 1, 1], "n": [2, 1, 2]}


@pytest.mark.parametrize("as_changes", [False, True])
def test_nested_values_are_texts(as_changes: bool) -> None:
    rows = QueryRows(as_changes=as_changes)
    rows(["a", "m"], [(1, ([1, 2], {"x": 1})), (1, ([3], {"y": "2"}))], 0)
    taken = rows.to_arrow().to_pydict()
    assert (taken["a"], taken["m"]) == (["[1, 2]", "[3]"], ["{'x': 1}", "{'y': '2'}"])


@pytest.mark.parametrize("as_changes", [False, True])
def test_too_many_rows_are_refused_and_not_shown_in_part(as_changes: bool) -> None:
    rows = QueryRows(as_changes=as_changes, most=2)
    rows(["n"], [(1, (1,)), (1, (2,))], 0)
    assert len(rows.to_arrow()) == 2
    rows(["n"], [(1, (3,))], 1)
    rows(["n"], [(-1, (3,))], 2)
    assert cells(rows) == []
    assert "more than 2 rows" in rows._repr_html_()
    with pytest.raises(LimitError, match="more than 2 rows, too many to keep in a notebook\nhint: INSERT INTO"):
        rows.to_arrow()


def test_rows_retracted_too_often_are_told() -> None:
    rows = QueryRows()
    rows(["n"], [(-1, (1,))], 0)
    assert "retracted more often than inserted: 1;" in rows._repr_html_()


def test_before_the_first_batch_there_are_no_rows() -> None:
    assert "(no rows)" in QueryRows()._repr_html_()
    assert len(QueryRows().to_arrow()) == 0
