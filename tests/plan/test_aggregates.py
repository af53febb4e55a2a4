"""Aggregates, planned: which operators there are, how rows get to them, and what EXPLAIN says."""

from __future__ import annotations

import pytest

from watersmeet.plan.explain import explain
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.testing.harness import Harness, load_script

STREAMS = """
CREATE STREAM a (k STRING, x INT, d DOUBLE, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM b (k STRING, y INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE MUTABLE STREAM m (k STRING, x INT, ts BIGINT) PRIMARY KEY (k);
"""
JOINED = "FROM a LEFT JOIN b ON a.k = b.k WITHIN INTERVAL '10' SECONDS"


def planned(select: str) -> PhysicalPlan:
    return Harness(*load_script(STREAMS + select)).plan


def layout(select: str) -> list[tuple[str, tuple[str, ...]]]:
    """The operators, and the columns by whose hash their first input is routed (none: to one bucket)."""
    operators = planned(select).operators
    assert all(each.single_bucket == (not each.routed_by[0]) for each in operators)
    return [(each.name, each.routed_by[0]) for each in operators]


@pytest.mark.parametrize(
    ("select", "operators"),
    [
        ("SELECT k, count() FROM a GROUP BY k", [("aggregate", ("a:$h_group",))]),
        ("SELECT x % 2, k, count() FROM a GROUP BY 1, 2", [("aggregate", ("a:$h_group",))]),
        # keys of two streams: each source computes its part of the hash
        (
            f"SELECT count() {JOINED} GROUP BY a.k, b.y",
            [("join_1", ("a:$h0_0",)), ("aggregate", ("a:$h_group", "b:$h_group"))],
        ),
        # what an outer join may pad is hashed only where NULL gives NULL
        (
            f"SELECT count() {JOINED} GROUP BY a.k, coalesce(b.y, 0)",
            [("join_1", ("a:$h0_0",)), ("aggregate", ("a:$h_group",))],
        ),
        (f"SELECT count() {JOINED} GROUP BY coalesce(b.y, 0)", [("join_1", ("a:$h0_0",)), ("aggregate", ())]),
        # without keys: where rows are, then one bucket
        ("SELECT count() FROM a", [("aggregate_parts", ("a:$h_key",)), ("aggregate", ())]),
        (
            "SELECT count_if(x > 1), any_value(x) FROM a",
            [("aggregate_parts", ("a:$h_key",)), ("aggregate", ())],
        ),
        ("SELECT count() FROM m", [("upsert_1", ("m:$h_key",)), ("aggregate_parts", ("m:$h_key",)), ("aggregate", ())]),
        (
            f"SELECT max(b.y) {JOINED}",
            [("join_1", ("a:$h0_0",)), ("aggregate_parts", ("a:$h0_0",)), ("aggregate", ())],
        ),
        ("SELECT count() FROM a SETTINGS buckets = 1", [("aggregate", ())]),
        ("SELECT count(DISTINCT x), count() FROM a", [("aggregate_parts", ("a:$h_value",)), ("aggregate", ())]),
        (
            "SELECT count(DISTINCT x), approx_count_distinct(x) FROM a",
            [("aggregate_parts", ("a:$h_value",)), ("aggregate", ())],
        ),
        ("SELECT count(DISTINCT x), count(DISTINCT k) FROM a", [("aggregate", ())]),
        (
            "SELECT sum(DISTINCT x), count(DISTINCT x), max_by(k, d) FROM a",
            [("aggregate_parts", ("a:$h_value",)), ("aggregate", ())],
        ),
        ("SELECT max_by(k, d), bool_and(x > 1) FROM a", [("aggregate_parts", ("a:$h_key",)), ("aggregate", ())]),
        ("SELECT collect_list(x), count() FROM a", [("aggregate", ())]),
        ("SELECT k, median(x) FROM a GROUP BY k", [("aggregate", ("a:$h_group",))]),
        (
            f"SELECT count(DISTINCT a.x + b.y) {JOINED}",
            [("join_1", ("a:$h0_0",)), ("aggregate", ())],
        ),
        (
            "SELECT count() FROM a JOIN b ON a.x < b.y WITHIN INTERVAL '10' SECONDS",
            [("join_1", ()), ("aggregate", ())],
        ),
    ],
)
def test_operators(select: str, operators: list[tuple[str, tuple[str, ...]]]) -> None:
    assert layout(select) == operators


def test_only_what_is_needed_travels() -> None:
    assert planned(f"SELECT a.k, count(), sum(b.y) {JOINED} WHERE a.x > 1 GROUP BY a.k").inputs[1].carried == (
        "b:k",
        "b:y",
    )
    assert planned("SELECT count() FROM a").inputs[0].carried == ()


def test_columns_are_called_as_they_were_written() -> None:
    columns = planned(
        "SELECT count(), count(*), Sum(x), std(x), count(DISTINCT k, x), first(x, true), max(x) FILTER (WHERE x < 5), "
        "sum(x) + 1, max(x) AS most, max(a.x), max(x), CountIf(x > 1), any_value(x), any_value(x, true), "
        "first(x, false), any_value(x) FILTER (WHERE x < 5) IGNORE NULLS, sum(DISTINCT x), max_by(k, x), array_agg(x), "
        "string_agg(k, ','), median(x), percentile(x, 0.5), approx_percentile(x, 0.5, 100), every(x > 1), "
        "listagg(DISTINCT k) WITHIN GROUP (ORDER BY k) FROM a"
    ).outputs
    assert [column.name for column in columns] == [
        "count()",
        "count(*)",
        "sum(x)",
        "stddev_samp(x)",
        "count(DISTINCT k, x)",
        "first(x) IGNORE NULLS",
        "max(x) FILTER (WHERE x < 5)",
        "column_8",
        "most",
        "max(a.x)",
        "max(x)",
        "count_if(x > 1)",
        "any_value(x)",
        "any_value(x) IGNORE NULLS",
        "first(x)",
        "any_value(x) FILTER (WHERE x < 5) IGNORE NULLS",
        "sum(DISTINCT x)",
        "max_by(k, x)",
        "collect_list(x)",
        "listagg(k, ',')",
        "median(x)",
        "percentile(x, 0.5)",
        "percentile_approx(x, 0.5)",
        "every(x > 1)",
        "listagg(DISTINCT k)",
    ]


def lines(select: str) -> list[str]:
    """What EXPLAIN says of the aggregate."""
    found = explain(planned(select)).splitlines()
    first = next(i for i, line in enumerate(found) if line.startswith("aggregate"))
    return [found[0], *found[first:-1]]


def test_explain_of_groups() -> None:
    where = "WHERE b.y IS NULL OR b.y > 1"
    assert lines(f"SELECT a.k, count(), avg(b.y), min(b.y) AS low {JOINED} {where} GROUP BY a.k HAVING low > 2") == [
        "EMIT CHANGELOG: an aggregate changes with the rows of its group",
        "aggregate: GROUP BY a.k, EMIT CHANGELOG, by hash of the group",
        "  filter before the aggregate: b.y IS NULL OR b.y > 1",
        "  running totals: count(), avg(b.y)",
        "  recomputed when values are added or retracted: min(b.y)",
        "  state: a row for each group, and its distinct values; kept until the end of input",
        "  for each group that changed, the previous row is retracted (-1) and the new one emitted (+1)",
        "filter after the aggregate: min(b.y) > 2",
    ]


def test_explain_names_functions_as_they_were_written() -> None:
    found = lines("SELECT k, count_if(x > 1), any_value(x) FROM a GROUP BY k")
    assert found[2:4] == [
        "  running totals: count_if(a.x > 1)",
        "  recomputed when values are added or retracted: any_value(a.x)",
    ]


def test_explain_of_rows_that_only_come() -> None:
    running, computed, state = lines("SELECT k, sum(d), max(x) FROM a GROUP BY k")[2:5]
    assert running == "  running totals: sum(a.d)"
    assert computed == "  recomputed when values are added or retracted: max(a.x)"
    assert state.startswith("  state: a row for each group, and its first and last values (rows only ever come); kept")


@pytest.mark.parametrize(
    ("select", "first", "last"),
    [
        (
            "SELECT count() FROM a",
            "aggregate_parts: all rows, EMIT CHANGELOG, in each bucket, over the rows it has",
            "aggregate: combines the results of all buckets, in one bucket",
        ),
        (
            "SELECT count(DISTINCT x) FROM a",
            "aggregate_parts: all rows, EMIT CHANGELOG, in each bucket, by hash of a.x",
            "aggregate: combines the results of all buckets, in one bucket",
        ),
        (
            "SELECT count(DISTINCT x), count(DISTINCT k) FROM a",
            "aggregate: all rows, EMIT CHANGELOG, one bucket (several DISTINCT arguments)",
            "  state: one row, and its distinct values; kept until the end of input",
        ),
        (
            "SELECT count(), median(x) FROM a",
            "aggregate: all rows, EMIT CHANGELOG, one bucket (median(a.x) needs all values)",
            "  state: one row, and its distinct values; kept until the end of input",
        ),
        (
            "SELECT count() FROM a JOIN b ON a.x < b.y WITHIN INTERVAL '10' SECONDS",
            "aggregate: all rows, EMIT CHANGELOG, one bucket (the join has no key)",
            "  state: one row; kept until the end of input",
        ),
    ],
)
def test_explain_without_keys(select: str, first: str, last: str) -> None:
    found = lines(select)
    assert (found[1], found[-1]) == (first, last)
