"""Which joins slide, which side probes, and what EXPLAIN says of it."""

from __future__ import annotations

import pytest

from tests.plan.test_group_joins import WITHIN, planned
from watersmeet.errors import PlanError
from watersmeet.plan.explain import explain
from watersmeet.plan.logical.tree import joins_of

SLIDING = "SETTINGS join_algorithm = 'sliding', multi_join = 'off'"
JOIN = f"JOIN b ON a.k = b.k {WITHIN}"


def probes(sql: str) -> list[str]:
    """Of each sliding join, the streams of the side that probes."""
    query = planned(sql).query
    found = [join.child(join.probe).visible for join in joins_of(query.root) if join.probe is not None]
    return ["".join(sorted(query.inputs[i].alias for i in each)) for each in found]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"a.k FROM a {JOIN} ORDER BY a.ts", ["a"]),
        (f"a.k FROM a {JOIN} ORDER BY b.ts, a.j DESC", ["b"]),
        (f"a.k FROM a LEFT {JOIN} ORDER BY a.ts", ["a"]),
        (f"b.k FROM a RIGHT {JOIN} ORDER BY b.ts", ["b"]),
        (f"a.k FROM a LEFT SEMI {JOIN} ORDER BY a.ts", ["a"]),
        (f"a.k FROM a LEFT ANTI {JOIN} ORDER BY a.ts", ["a"]),
        (f"b.k FROM a RIGHT SEMI {JOIN} ORDER BY b.ts", ["b"]),
        # rows of the other side without a partner would be outside the order
        (f"a.k FROM a LEFT {JOIN} ORDER BY b.ts", []),
        (f"a.k FROM a FULL {JOIN} ORDER BY a.ts", []),
        # no order is asked for
        (f"a.k FROM a {JOIN}", []),
        # of several joins, only the last gives the order
        (f"a.k FROM a LEFT {JOIN} FULL JOIN c ON a.k = c.k {WITHIN} ORDER BY a.ts", []),
        (f"a.k FROM a FULL {JOIN} LEFT JOIN c ON a.j = c.k AND c.ts BETWEEN a.ts AND a.ts + 5 ORDER BY a.ts", ["ab"]),
        # one operator for all three has no side that probes
        (f"a.k FROM a {JOIN} JOIN c ON a.k = c.k {WITHIN} ORDER BY a.ts", []),
        # the end of OR's rows is not the end of their windows
        ("a.k FROM a WHERE a.j = 1 OR EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND a.ts = b.ts) ORDER BY a.ts", []),
        ("a.k FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k ORDER BY a.ts", []),
    ],
)
def test_by_default_the_side_that_orders_the_results_probes(query: str, expected: list[str]) -> None:
    assert probes(f"SELECT {query}") == expected
    assert probes(f"SELECT {query} SETTINGS join_algorithm = 'symmetric'") == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"a.k FROM a {JOIN}", ["b"]),
        (f"a.k FROM a LEFT {JOIN}", ["b"]),
        (f"a.k FROM a FULL {JOIN}", ["b"]),
        (f"a.k FROM a LEFT ANTI {JOIN}", ["a"]),
        (f"b.k FROM a RIGHT ANTI {JOIN}", ["b"]),
        (f"a.k FROM a FULL {JOIN} ORDER BY a.ts", ["a"]),
        (f"a.k FROM a {JOIN} LEFT JOIN c ON a.k = c.k {WITHIN}", ["b", "c"]),
        (f"a.k FROM a {JOIN} LEFT JOIN c ON a.k = c.k {WITHIN} ORDER BY a.ts", ["b", "ab"]),
    ],
)
def test_every_join_that_can_slides_where_it_is_asked_for(query: str, expected: list[str]) -> None:
    assert probes(f"SELECT {query} {SLIDING}") == expected


@pytest.mark.parametrize(
    "query",
    [
        f"a.k FROM a LEFT {JOIN} EMIT CHANGELOG",
        "a.k FROM a JOIN b ON a.k = b.k",
        "a.k FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.j",
        "a.k FROM a JOIN m ON a.k = m.k",
        "a.k FROM a JOIN b ON a.k = b.k AND b.ts >= a.ts",
        "a.k FROM a",
    ],
)
def test_what_cannot_slide_is_refused(query: str) -> None:
    with pytest.raises(PlanError, match="join_algorithm = 'sliding', but no join of this query can slide") as raised:
        planned(f"SELECT {query} {SLIDING}")
    assert raised.value.position is not None
    assert "window that bounds both sides" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("kind", "beside"),
    [
        ("RIGHT", ""),
        ("FULL", "; rows of the left side without a partner are outside it"),
        ("RIGHT SEMI", ""),
    ],
)
def test_explain(kind: str, beside: str) -> None:
    text = explain(planned(f"SELECT b.k FROM a {kind} {JOIN} {SLIDING}")).splitlines()
    assert [line for line in text if line.startswith(("  state", "  sliding"))] == [
        "  state of the left side: rows up to 20 s behind the frontier",
        "  state of the right side: rows up to 10 s behind the frontier",
        f"  sliding: results in order of b.ts within a bucket, once all partners are there{beside}",
    ]
