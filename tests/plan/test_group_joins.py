"""Which joins one operator computes, and how long their rows stay."""

from __future__ import annotations

import pytest

from watersmeet.errors import PlanError
from watersmeet.plan.explain import explain
from watersmeet.plan.logical.tree import JoinGroup, operators_of
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.testing.harness import Harness, load_script

STREAMS = "".join(
    f"CREATE {mutable} {name} (k INT, j INT, b BIGINT, ts BIGINT, WATERMARK FOR ts AS ts){key}"
    + (";\n" if key else " WITH (event_time_unit = 's');\n")
    for name, mutable, key in [
        ("a", "STREAM", ""),
        ("b", "STREAM", ""),
        ("c", "STREAM", ""),
        ("d", "STREAM", ""),
        ("m", "MUTABLE STREAM", " PRIMARY KEY (k)"),
    ]
)


def planned(sql: str) -> PhysicalPlan:
    return Harness(*load_script(f"{STREAMS}{sql};")).plan


def groups(sql: str) -> list[JoinGroup]:
    return [join.group for join in operators_of(planned(sql).query.root) if join.group is not None]


def aliases(sql: str) -> list[str]:
    plan = planned(sql)
    found = [join.group for join in operators_of(plan.query.root) if join.group is not None]
    return ["".join(plan.query.inputs[i].alias for i in group.inputs) for group in found]


WITHIN = "WITHIN INTERVAL '10' SECONDS"


@pytest.mark.parametrize(
    ("joins", "expected"),
    [
        (f"a JOIN b ON a.k = b.k JOIN c ON a.k = c.k {WITHIN}", ["abc"]),
        (f"a JOIN b ON a.k = b.j JOIN c ON b.j = c.k {WITHIN}", ["abc"]),  # a.k, b.j and c.k are one key
        (f"a JOIN b ON a.k = b.k JOIN c ON b.j = c.j {WITHIN}", []),
        (f"a JOIN b ON a.k = b.k AND a.j = b.j JOIN c ON b.j = c.j {WITHIN}", ["abc"]),  # j is common, k is a condition
        (f"a JOIN b ON a.k = b.k JOIN c ON a.b = c.b {WITHIN}", []),
        (f"a JOIN b ON a.k = b.b JOIN c ON b.b = c.b {WITHIN}", ["abc"]),  # BIGINT on each side of each
        (f"a JOIN b ON a.k = b.k JOIN c ON b.k = c.b {WITHIN}", []),  # INT in one, BIGINT in the other
        (f"a JOIN b ON a.k <=> b.k JOIN c ON b.k = c.k {WITHIN}", []),  # NULL equals NULL in one alone
        (f"a JOIN b ON a.k = b.k JOIN c ON a.k = c.k JOIN d ON a.j = d.j {WITHIN}", ["abc"]),
        (f"a LEFT JOIN b ON a.k = b.k JOIN c ON a.k = c.k {WITHIN}", ["abc"]),
        (f"a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.k = c.k {WITHIN}", ["abc"]),
        (f"a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON a.j = c.j {WITHIN}", []),
        (f"a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.j = c.j LEFT JOIN d ON a.k = d.k AND c.j = d.k {WITHIN}", []),
        (f"a LEFT JOIN b ON a.k = b.j LEFT JOIN c ON a.j = c.k LEFT JOIN d ON d.k = b.j AND d.k = c.k {WITHIN}", []),
        (f"a LEFT JOIN b ON a.k <=> b.k LEFT JOIN c ON a.k <=> c.k {WITHIN}", []),
        (f"a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k {WITHIN} EMIT CHANGELOG", []),
        (f"a LEFT JOIN b ON a.k = b.k RIGHT JOIN c ON a.k = c.k {WITHIN}", []),
        (f"a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k FULL JOIN d ON a.k = d.k {WITHIN}", ["abc"]),
        (f"a LEFT JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k {WITHIN}", []),
        (f"a JOIN b ON a.k = b.k JOIN c ON a.k = c.k LEFT JOIN d ON a.k = d.k {WITHIN}", ["abcd"]),
        (f"a JOIN b ON a.k = b.k JOIN c ON a.k = c.k LEFT JOIN d ON a.j = d.k {WITHIN}", ["abc"]),
        (f"a JOIN b ON a.k = b.k {WITHIN}", []),
        ("a JOIN b ON a.k = b.k JOIN m ON a.k = m.k", []),
        ("a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k JOIN c ON a.k = c.k", []),
    ],
)
def test_groups(joins: str, expected: list[str]) -> None:
    assert aliases(f"SELECT a.k FROM {joins}") == expected


def test_off_and_on() -> None:
    sql = f"SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k {WITHIN} SETTINGS multi_join = "
    assert groups(f"{sql}'off'") == []
    assert len(groups(f"{sql}'on'")) == 1


@pytest.mark.parametrize(
    ("joins", "reason"),
    [
        (f"a JOIN b ON a.k = b.k JOIN c ON b.j = c.j {WITHIN}", "a, b, c have no key of one type in common"),
        (
            f"a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.k = c.k {WITHIN} EMIT CHANGELOG",
            "a, b, c: left joins run in one operator where results are final, and here they are a changelog",
        ),
        (
            f"a LEFT JOIN b ON a.k <=> b.k LEFT JOIN c ON b.k <=> c.k {WITHIN}",
            "a, b, c have no key of one type in common that each join compares with =",
        ),
        (
            "a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.k = c.k EMIT FINAL",
            "a, b, c: left joins run in one operator where windows bound how long each row stays",
        ),
        (
            "a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.j JOIN c ON a.k = c.k AND c.ts = a.ts",
            "a, b, c: a join whose rows expire by their own columns runs by itself",
        ),
        (f"a JOIN b ON a.k = b.k {WITHIN}", "there are no inner or left joins of three append-only streams in a row"),
    ],
)
def test_on_is_refused_where_there_is_no_group(joins: str, reason: str) -> None:
    with pytest.raises(PlanError) as raised:
        planned(f"SELECT a.k FROM {joins} SETTINGS multi_join = 'on', join_max_buffered_bytes = 1000000")
    assert raised.value.message == "multi_join = 'on', but no joins of this query can run in one operator"
    assert raised.value.detail == reason
    assert raised.value.position is not None


def test_reaches_follow_from_bounds_over_a_third_stream() -> None:
    """b is 0 to 10 after a and c 0 to 5 after b, so c is up to 15 after a; no c comes before its a or b."""
    (group,) = groups(
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 10 "
        "JOIN c ON b.k = c.k AND c.ts BETWEEN b.ts AND b.ts + 5"
    )
    assert [reach // 1_000_000 for reach in group.reaches.values() if reach is not None] == [15, 5, 0]


def test_rows_of_a_chain_stay_while_the_first_row_can_be_padded() -> None:
    """b is 0 to 10 after a and c 1 to 5 after b or lacking: the last padding of a is for good at 15."""
    (group,) = groups(
        "SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 10 "
        "LEFT JOIN c ON b.k = c.k AND c.ts BETWEEN b.ts + 1 AND b.ts + 5"
    )
    assert [reach // 1_000_000 for reach in group.reaches.values() if reach is not None] == [15, 15, 14]


def test_explain_of_a_chain() -> None:
    text = explain(planned(f"SELECT a.k FROM a LEFT JOIN b ON a.k = b.k JOIN c ON b.k = c.k {WITHIN}"))
    lines = text[text.index("join_1") :].splitlines()
    assert lines[9].startswith("  a key with 10,000 rows in a batch: those of the first stream are spread over all")
    assert lines[:9] == [
        "join_1: a left join b inner join c in one operator, by key hash",
        "  key a.k = b.k = c.k",
        "  window -10 s <= b.ts - a.ts <= 10 s",
        "  window -10 s <= c.ts - a.ts <= 10 s",
        "  window -10 s <= c.ts - b.ts <= 10 s",
        "  condition in the kernel: b.k = c.k",
        "  state of a: rows up to 10 s behind the frontier",
        "  state of b: rows up to 20 s behind the frontier",
        "  state of c: rows up to 20 s behind the frontier",
    ]


def test_explain_says_what_one_operator_keeps_and_why_others_do_not_share_one() -> None:
    text = explain(planned(f"SELECT a.k FROM a JOIN b ON a.k = b.k AND a.j < b.j JOIN c ON a.k = c.k {WITHIN}"))
    lines = text[text.index("join_1") :].splitlines()
    assert lines[:9] == [
        "join_1: inner join of a, b, c in one operator, by key hash",
        "  key a.k = b.k = c.k",
        "  window -10 s <= b.ts - a.ts <= 10 s",
        "  window -10 s <= c.ts - a.ts <= 10 s",
        "  window -10 s <= c.ts - b.ts <= 10 s",
        "  condition in the kernel: (a.j < b.j)",
        "  state of a: rows up to 10 s behind the frontier",
        "  state of b: rows up to 10 s behind the frontier",
        "  state of c: rows up to 10 s behind the frontier",
    ]
    text = explain(planned(f"SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON b.j = c.j {WITHIN}"))
    assert "note: a, b, c have no key of one type in common, so they are joined one after the other" in text
