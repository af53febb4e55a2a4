"""Joins in parentheses: what is in scope, and what is refused."""

from __future__ import annotations

import pytest

from watersmeet.bind.statement import bind
from watersmeet.errors import WatersmeetError
from watersmeet.plan.logical.tree import Join, Node
from watersmeet.testing.harness import load_script

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, {name}x INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
    for name in "abcd"
)


def shape(node: Node) -> str:
    """The tree in parentheses."""
    if isinstance(node, Join):
        return f"({shape(node.left)} {node.kind.value} {shape(node.right)})"
    return node.input.alias


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k", "(a inner (b inner c))"),
        ("(a JOIN b ON a.k = b.k) JOIN c ON a.k = c.k", "((a inner b) inner c)"),
        (
            "a LEFT JOIN (b FULL JOIN (c JOIN d ON c.k = d.k) ON b.k = c.k) ON a.k = d.k",
            "(a left (b full (c inner d)))",
        ),
        ("a LEFT JOIN (b) ON a.k = b.k", "(a left b)"),
        ("a LEFT JOIN ((b x)) ON a.k = x.k", "(a left x)"),
        ("a, (b JOIN c ON b.k = c.k)", "(a inner (b inner c))"),
        ("(a, b), c", "((a inner b) inner c)"),
        ("((SELECT k FROM a) x JOIN b ON x.k = b.k)", "(a inner b)"),
        ("a LEFT JOIN b JOIN c ON b.k = c.k ON a.k = b.k", "(a left (b inner c))"),
        ("a RIGHT SEMI JOIN (b LEFT ANTI JOIN c ON b.k = c.k) ON a.k = b.k", "((b anti c) semi a)"),
        ("a JOIN (b JOIN c ON bx = cx) USING (k)", "(a inner (b inner c))"),
    ],
)
def test_the_tree(sql: str, expected: str) -> None:
    streams, query = load_script(f"{STREAMS}SELECT 1 AS one FROM {sql}")
    assert shape(bind(query, streams).root) == expected


def test_columns_come_in_the_order_of_the_text() -> None:
    streams, query = load_script(
        f"{STREAMS}SELECT * FROM (a JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k) JOIN d USING (k)"
    )
    names = [column.name for column in bind(query, streams).outputs]
    assert [name for name in names if name.endswith("x")] == ["ax", "bx", "cx", "dx"]


ALIAS = "leave it out, and use the aliases in the parentheses; or write (SELECT … FROM …) x"


@pytest.mark.parametrize(
    ("sql", "message", "column", "hint"),
    [
        (
            "SELECT 1 FROM a JOIN (b JOIN c ON b.k = c.k) AS x ON a.k = x.k",
            "joins in parentheses take no alias (x)",
            49,
            ALIAS,
        ),
        ("SELECT 1 FROM (a) x", "joins in parentheses take no alias (x)", 19, ALIAS),
        (
            "SELECT 1 FROM a JOIN (b JOIN c ON a.k = c.k) ON a.k = b.k",
            "there is no stream or alias a here",
            35,
            None,
        ),
        (
            "SELECT 1 FROM a JOIN (b JOIN a ON a.k = b.k) ON TRUE",
            "a appears in FROM twice",
            30,
            "give each its own alias",
        ),
        (
            "SELECT 1 FROM (a JOIN b ON a.k = b.k) JOIN b ON a.k = b.k",
            "b appears in FROM twice",
            44,
            "give each its own alias",
        ),
        (
            "SELECT 1 FROM a JOIN (b LEFT SEMI JOIN c ON b.k = c.k) ON a.k = c.k",
            "there is no stream or alias c here",
            65,
            None,
        ),
        (
            "SELECT 1 FROM a JOIN (b JOIN c ON b.k = c.k) USING (ax)",
            "USING (ax): the right side has no such column",
            53,
            None,
        ),
        (
            "SELECT 1 FROM a ASOF JOIN (b JOIN c ON b.k = c.k) MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k",
            "the right side of a join as of a time is a stream or a query, not joins in parentheses",
            17,
            "write them as a query with a name: (SELECT … FROM … JOIN …) q",
        ),
    ],
)
def test_what_is_refused(sql: str, message: str, column: int, hint: str | None) -> None:
    streams, query = load_script(f"{STREAMS}\n{sql}")
    with pytest.raises(WatersmeetError) as raised:
        bind(query, streams)
    assert raised.value.message == message
    assert raised.value.position is not None
    assert (raised.value.position.line, raised.value.position.col) == (2, column)
    if hint is not None:
        assert raised.value.hint == hint
