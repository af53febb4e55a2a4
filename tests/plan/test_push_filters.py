"""Where conditions on one side go, for each kind of join."""

from __future__ import annotations

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.testing.harness import load_script

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
    for name in "ab"
)


def filtered(kind: str, on: str = "", where: str = "") -> str:
    """The aliases of the inputs that are filtered before they are packed."""
    shown = "b" if kind in ("RIGHT SEMI", "RIGHT ANTI") else "a"
    streams, query = load_script(
        f"{STREAMS}SELECT {shown}.k FROM a {kind} JOIN b ON a.k = b.k{on} WITHIN INTERVAL '1' SECOND {where}"
    )
    return "".join(part.input.alias for part in plan_query(query, streams).inputs if part.keep is not None)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("INNER", "ab"),
        ("LEFT", "b"),
        ("RIGHT", "a"),
        ("FULL", ""),
        ("LEFT SEMI", "ab"),
        ("LEFT ANTI", "b"),
        ("RIGHT SEMI", "ab"),
        ("RIGHT ANTI", "a"),
    ],
)
def test_on_filters_no_side_whose_rows_come_out_without_a_partner(kind: str, expected: str) -> None:
    assert "".join(filtered(kind, on=f" AND {name}.v > 1") for name in "ab") == expected


@pytest.mark.parametrize(("kind", "expected"), [("INNER", "ab"), ("LEFT", "a"), ("RIGHT", "b"), ("FULL", "")])
def test_where_filters_no_side_that_may_be_padded(kind: str, expected: str) -> None:
    assert "".join(filtered(kind, where=f"WHERE {name}.v > 1") for name in "ab") == expected


@pytest.mark.parametrize("kind", ["LEFT SEMI", "LEFT ANTI"])
def test_where_after_a_semi_or_anti_join_filters_the_left_side(kind: str) -> None:
    assert filtered(kind, where="WHERE a.v > 1") == "a"


@pytest.mark.parametrize("kind", ["RIGHT SEMI", "RIGHT ANTI"])
def test_where_after_a_right_semi_or_anti_join_filters_the_right_side(kind: str) -> None:
    assert filtered(kind, where="WHERE b.v > 1") == "b"


@pytest.mark.parametrize(("where", "expected"), [("", "a"), ("a.v = 9 OR ", "")])
def test_a_condition_in_exists_filters_the_outer_rows_unless_they_may_do_without_it(where: str, expected: str) -> None:
    streams, query = load_script(
        f"{STREAMS}SELECT a.k FROM a WHERE {where}EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND a.v > 1)"
    )
    assert "".join(part.input.alias for part in plan_query(query, streams).inputs if part.keep is not None) == expected
