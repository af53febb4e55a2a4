"""What EXPLAIN says of the operators."""

from __future__ import annotations

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.plan.explain import explain
from watersmeet.testing.harness import load_script

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');" for name in "abc"
)
AT_ONCE = "  results are emitted at once; "
CORRECTED = "a padded row is retracted at its first partner"
WAITED = "outages: a sink is waited for"
FOLLOWS = "a result is retracted with the rows it is made of"


def explained(joins: str, emit: str) -> list[str]:
    streams, query = load_script(f"{STREAMS}SELECT a.k FROM a {joins} WITHIN INTERVAL '1' SECOND EMIT {emit}")
    return explain(plan_query(query, streams)).splitlines()


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("LEFT", ""), ["join_1: left join, EMIT CHANGELOG", CORRECTED, "join_2: inner join, EMIT CHANGELOG", FOLLOWS]),
        (("", "LEFT"), ["join_1: inner join, append-only", "join_2: left join, EMIT CHANGELOG", CORRECTED]),
        (
            ("LEFT", "FULL"),
            [
                "join_1: left join, EMIT CHANGELOG",
                CORRECTED,
                "join_2: full join, EMIT CHANGELOG",
                f"{CORRECTED}, {FOLLOWS}",
            ],
        ),
        (
            ("LEFT ANTI", "LEFT SEMI"),
            [
                "join_1: anti join, EMIT CHANGELOG",
                "a row is retracted at its first partner",
                "join_2: semi join, EMIT CHANGELOG",
                FOLLOWS,
            ],
        ),
    ],
)
def test_each_join_of_a_changelog_says_whether_its_results_are_taken_back(
    kinds: tuple[str, str], expected: list[str]
) -> None:
    one, two = kinds
    lines = explained(f"{one} JOIN b ON a.k = b.k {two} JOIN c ON a.k = c.k", "CHANGELOG")
    found = [
        line.removeprefix(AT_ONCE).removesuffix(", by key hash")
        for line in lines
        if line.startswith(("join_", AT_ONCE))
    ]
    assert found == expected


def test_a_right_semi_join_is_explained_as_written() -> None:
    streams, query = load_script(
        f"{STREAMS}SELECT b.k FROM a RIGHT ANTI JOIN b ON a.k = b.k AND a.ts + b.k < 3"
        " WITHIN (INTERVAL '5' SECONDS, INTERVAL '20' SECONDS) EMIT CHANGELOG SETTINGS skew = 'spread'"
    )
    lines = explain(plan_query(query, streams)).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("join_1"))
    assert lines[first:-1] == [
        "join_1: right anti join, EMIT CHANGELOG, by key hash",
        "  key a.k = b.k",
        "  window -5 s <= b.ts - a.ts <= 20 s",
        "  condition in the kernel: ((l.$t // 1000000) + b.k < 3)",
        "  state of the left side: rows up to 20 s behind the frontier",
        "  state of the right side: rows up to 5 s behind the frontier",
        "  a key with 10,000 rows in a batch: those of the right side are spread over all buckets",
        "  results are emitted at once; a row is retracted at its first partner",
    ]


def test_a_final_join_takes_nothing_back() -> None:
    lines = explained("LEFT JOIN b ON a.k = b.k", "FINAL")
    assert "join_1: left join, EMIT FINAL, by key hash" in lines
    assert not [line for line in lines if line.startswith(AT_ONCE)]


def test_a_condition_in_the_kernel_names_columns_as_they_are_written() -> None:
    lines = explained("LEFT JOIN b ON a.k = b.k AND a.k + b.k < 9 AND a.ts + b.k < 3", "FINAL")
    assert "  condition in the kernel: (a.k + b.k < 9) AND ((l.$t // 1000000) + b.k < 3)" in lines


def test_what_is_computed_at_a_source_is_shown_as_what_it_is() -> None:
    lines = explained("JOIN b ON a.k = b.k + 1", "FINAL")
    assert "  key a.k = CAST(b.k + 1 AS INT)" in lines
    assert ".$" not in "".join(lines)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ("a", "  left rows that meet (a.k > 1) are emitted at once, whatever their partners, and not stored"),
        ("m a", "  left rows that meet (a.k > 1) are emitted at once, whatever their partners"),
    ],
)
def test_what_or_combines_with_exists_is_explained(left: str, expected: str) -> None:
    streams, query = load_script(
        f"{STREAMS}CREATE MUTABLE STREAM m (k INT, PRIMARY KEY (k));"
        f"SELECT a.k FROM {left} WHERE a.k > 1 OR NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"
    )
    lines = explain(plan_query(query, streams)).splitlines()
    assert [line for line in lines if "left rows that meet" in line] == [expected]


def test_a_mark_join_is_explained() -> None:
    streams, query = load_script(
        f"{STREAMS}SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR EXISTS (SELECT 1 FROM b)"
    )
    lines = explain(plan_query(query, streams)).splitlines()
    assert "join_1: mark join, EMIT CHANGELOG, by key hash" in lines
    assert "  all left rows go on, with $not_exists_1: whether they have no partner" in lines
    assert f"{AT_ONCE}a row is retracted at its first partner, and given with the other mark" in lines
    assert "join_2: semi join, EMIT CHANGELOG, one bucket (no key)" in lines
    assert "  left rows that meet $not_exists_1 are emitted at once, whatever their partners, and not stored" in lines


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            "sink_retry = '10 minutes'",
            f"{WAITED} 10 minutes, a source and the checkpoint's store 1 minute",
        ),
        ("source_retry = 0", f"{WAITED} 1 minute, a source and the checkpoint's store 0 seconds"),
        ("trigger = '1 second'", None),
    ],
)
def test_how_long_outages_are_waited_for_is_said_where_it_is_set(settings: str, line: str | None) -> None:
    streams, query = load_script(f"{STREAMS}SELECT a.k FROM a SETTINGS {settings}")
    found = [each.strip() for each in explain(plan_query(query, streams)).splitlines() if "outages" in each]
    assert found == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        (
            "SELECT * FROM b QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
            ["  versions of b.k, by b.ts", "ties: the last in its source"],
        ),
        (
            "SELECT k, count(*) AS n FROM TUMBLE(b, ts, INTERVAL '9' SECONDS) GROUP BY k, window_start, window_end",
            ["  versions of r.k, by b.window_end", "ties: the one with the greatest values"],
        ),
        (
            "SELECT k FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k + 1 ORDER BY ts DESC) AS n FROM b) WHERE n = 1",
            ["  versions of b.k + 1, by b.ts", "  partner for each b.k + 1: the newest b.ts at or before a.ts"],
        ),
    ],
)
def test_what_a_query_on_the_right_side_has_versions_of_is_said(query: str, lines: list[str]) -> None:
    sql = f"SELECT a.k FROM a JOIN ({query}) FOR SYSTEM_TIME AS OF a.ts r ON a.k = r.k"
    streams, bound = load_script(STREAMS + sql)
    text = explain(plan_query(bound, streams))
    assert not [line for line in lines if line not in text], text


def test_the_elements_of_rows_that_change_are_named_and_filtered() -> None:
    """They are made of results, which have no event time."""
    streams, query = load_script(
        "CREATE STREAM o (id INT, items ARRAY<INT>, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (id)"
        " WITH (event_time_unit = 's') SETTINGS mode = 'versioned_kv';"
        "SELECT id, item FROM o LATERAL VIEW explode(items) t AS item WHERE item <> 3"
    )
    lines = explain(plan_query(query, streams)).splitlines()
    assert "  a row for each element of explode(items)" in lines
    assert "  filter before packing: t.item <> 3" in lines


@pytest.mark.parametrize(
    ("emit", "settings", "expected"),
    [
        ("FINAL", "eviction = 'oldest', join_max_buffered_bytes = 1000", []),
        ("FINAL ORDER BY a.ts", "eviction = 'oldest', join_max_buffered_bytes = 1000", ["536,870,912"]),
        ("FINAL ORDER BY a.ts", "eviction = 'oldest', join_max_buffered_bytes = '2GB'", ["2,000,000,000"]),
        ("FINAL ORDER BY a.ts", "join_max_buffered_bytes = 1000", []),
    ],
)
def test_the_limit_of_what_stands_over_joins_that_evict(emit: str, settings: str, expected: list[str]) -> None:
    mode, _, order = emit.partition(" ")
    streams, query = load_script(
        f"{STREAMS}SELECT a.k FROM a JOIN b ON a.k = b.k WITHIN INTERVAL '1' SECOND {order} EMIT {mode}"
        f" SETTINGS {settings}"
    )
    start = "state limit of operators that evict nothing: "
    told = [line for line in explain(plan_query(query, streams)).splitlines() if line.startswith(start)]
    assert told == [f"{start}{limit}; at the limit the query stops, nothing is lost" for limit in expected]
