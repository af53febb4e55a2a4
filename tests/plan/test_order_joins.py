"""Inner joins in an order in which each has a key."""

from __future__ import annotations

import re

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement import bind
from watersmeet.plan.explain import explain
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Grace, Join, Node, joins_of
from watersmeet.plan.passes import optimize
from watersmeet.testing.harness import load_script

SECOND = 1_000_000
STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, j INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
    for name in "abcd"
)
CHANGING = (
    "CREATE STREAM e (k INT, j INT, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (k)"
    " WITH (event_time_unit = 's') SETTINGS mode = 'versioned_kv';"
)
TABLE = "CREATE TABLE t (k INT, j INT) WITH (connector = 'files', path = '/t');"


def root(sql: str) -> Node:
    streams, query = load_script(f"{STREAMS}{CHANGING}{TABLE}SELECT 1 AS x FROM {sql}")
    return optimize(bind(query, streams)).root


def shape(node: Node) -> str:
    """The tree in parentheses."""
    return f"({shape(node.left)} {shape(node.right)})" if isinstance(node, Join) else node.input.alias


W = "INTERVAL '5' SECONDS"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a, c, b WHERE a.k = b.k AND b.j = c.j", "((a b) c)"),
        ("a CROSS JOIN c JOIN b ON a.k = b.k AND b.j = c.j", "((a b) c)"),
        ("a, d, c, b WHERE a.k = b.k AND b.j = c.j AND c.k = d.k", "(((a b) c) d)"),
        ("a, c, b, d WHERE a.k = b.k AND c.j = b.j AND d.k = c.k", "(((a b) c) d)"),
        # the written order has all keys, or as many as there can be
        ("a, b, c WHERE a.k = b.k AND b.j = c.j", "((a b) c)"),
        ("c, b, a WHERE a.k = b.k AND b.j = c.j", "((c b) a)"),
        ("a, c, b WHERE a.k = b.k", "((a c) b)"),
        ("a, b, c WHERE b.k = c.k", "((a b) c)"),
        ("a, c, b WHERE a.k = b.k AND a.k = c.k", "((a c) b)"),
        # an equality of one stream with two, or of times, is no key
        ("a, c, b WHERE a.k + c.k = b.j AND a.k = b.k", "((a c) b)"),
        ("a, c, b WHERE a.k + c.k = b.k", "((a c) b)"),
        ("a, c, b WHERE a.ts = b.ts AND b.k = c.k", "((a c) b)"),
        # joins of other kinds are one part
        ("a, c LEFT JOIN d ON c.k = d.k, b WHERE a.k = b.k AND b.j = c.j", "(((a c) d) b)"),
        (
            "a CROSS JOIN (SELECT c.j, c.k FROM c LEFT JOIN d ON c.k = d.k) x JOIN b ON a.k = b.k AND b.j = x.j",
            "((a b) (c d))",
        ),
        ("d LEFT JOIN (SELECT a.k FROM a, c, b WHERE a.k = b.k AND b.j = c.j) x ON d.k = x.k", "(d ((a b) c))"),
        ("a, c, b WHERE a.k = b.k AND b.j = c.j AND a.j IN (SELECT d.j FROM d)", "(((a b) c) d)"),
        # an external table keeps the order
        (
            "a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = t.k CROSS JOIN c JOIN b ON a.k = b.k AND b.j = c.j",
            "(((a t) c) b)",
        ),
        # changing streams
        ("a, e, b WHERE a.k = b.k AND b.j = e.j", "((a b) e)"),
        # clauses of one join keep the order, one at the end does not
        (f"a CROSS JOIN c WITHIN {W} JOIN b ON a.k = b.k AND b.j = c.j", "((a c) b)"),
        (f"a CROSS JOIN c WITHIN {W} JOIN b ON a.k = b.k AND b.j = c.j WITHIN {W}", "((a c) b)"),
        (f"a CROSS JOIN c GRACE PERIOD {W} JOIN b ON a.k = b.k AND b.j = c.j", "((a c) b)"),
        (f"a CROSS JOIN c JOIN b ON a.k = b.k AND b.j = c.j WITHIN {W} GRACE PERIOD {W}", "((a b) c)"),
    ],
)
def test_the_order(sql: str, expected: str) -> None:
    assert shape(root(sql)) == expected


def test_conditions_stand_where_all_they_read_is_there() -> None:
    first, second = joins_of(
        root("a, c, b WHERE a.k = b.k AND b.j = c.j AND a.j < b.j AND a.j < c.j AND c.ts BETWEEN a.ts AND a.ts + 5")
    )
    assert [str(each) for each in first.condition.residual] == ['"a:j" < "b:j"']
    assert [str(each) for each in second.condition.residual] == ['"a:j" < "c:j"']
    assert second.condition.bounds == Interval(0, 5 * SECOND)


def test_a_window_keeps_its_direction() -> None:
    """c is right of a and left of b as written: at most 1 after a, and b at most 1 after c."""
    first, second = joins_of(
        root(
            "a CROSS JOIN c JOIN b ON a.k = b.k AND b.j = c.j"
            " WITHIN (INTERVAL '3' SECONDS, INTERVAL '1' SECOND) GRACE PERIOD INTERVAL '7' SECONDS"
        )
    )
    later = Interval(-3 * SECOND, SECOND)
    assert first.condition.bounds == later
    assert second.condition.leaders == ((0,), (1,))
    assert (second.condition.bounds, second.condition.loose) == (later, ((2, 1, later.negated()),))
    assert first.condition.grace == second.condition.grace == Grace(7 * SECOND)


def test_joins_keep_the_places_of_what_they_add() -> None:
    first, second = joins_of(root("a\nCROSS JOIN c\nJOIN b ON a.k = b.k AND b.j = c.j"))
    assert [join.position.line for join in (first, second) if join.position is not None] == [3, 2]


def explained(sql: str) -> list[str]:
    streams, query = load_script(f"{STREAMS}SELECT * FROM {sql}")
    return explain(plan_query(query, streams)).splitlines()


def test_explain_says_that_the_order_is_another() -> None:
    note = "note: joined in the order a, b, c, not as written, so that fewer joins lack a key"
    lines = explained("a, c, b WHERE a.k = b.k AND b.j = c.j")
    assert note in lines
    assert not [line for line in lines if "(no key)" in line]
    assert re.findall(r"\w+(?= \(was)", lines[-1]) == ["c_k", "c_j", "c_ts", "b_k", "b_j", "b_ts"]
    assert note not in explained("a, b, c WHERE a.k = b.k AND b.j = c.j")
