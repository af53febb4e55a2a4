"""Conditions across both sides as SQL for the kernel."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from watersmeet.plan.across_sides import render


def column(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(f"{name}:x", quoted=True), table="l")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a < b + 1", '(l."a:x" < l."b:x" + CAST(1 AS INT))'),
        ("a LIKE b", """(l."a:x" LIKE l."b:x" ESCAPE '\\')"""),
        ("NOT a LIKE b", """(NOT l."a:x" LIKE l."b:x" ESCAPE '\\')"""),
        (
            "a LIKE CASE WHEN b LIKE 'x' THEN b END",
            """(l."a:x" LIKE CASE WHEN l."b:x" LIKE 'x' ESCAPE '\\' THEN l."b:x" END ESCAPE '\\')""",
        ),
    ],
)
def test_every_column_is_replaced_and_every_like_has_sparks_escape(condition: str, expected: str) -> None:
    assert render(parse_one(condition, dialect="spark"), column) == expected


def test_what_stands_for_a_column_is_left_as_it_is() -> None:
    tree = parse_one("a = 1", dialect="spark")
    assert render(tree, lambda name: exp.paren(exp.column(name) + 1)) == "((a + 1) = 1)"
    assert tree.sql() == "a = 1"
