"""The keys of what operators store, by what plan.json tells of them: every kind of operator that has some."""

from __future__ import annotations

import pytest

from watersmeet.runtime.inspection.described import OperatorText, operators_of
from watersmeet.runtime.plan_file import describe
from watersmeet.state.manifest import read_manifest
from watersmeet.state.segments import read_segment
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAMS = "".join(
    f"CREATE {kind}STREAM {name} (k INT, {value} INT, ts BIGINT, WATERMARK FOR ts AS ts - 100) {key} "
    "WITH (event_time_unit = 's');"
    for name, value, kind, key in (
        ("a", "x", "", ""),
        ("b", "y", "", ""),
        ("c", "z", "", ""),
        ("m", "v", "MUTABLE ", "PRIMARY KEY (k)"),
        ("p", "w", "", "PRIMARY KEY (k) SETTINGS mode = 'versioned_kv'"),
    )
)
ROWS = {"a": [(7, 1, 10), (8, 2, 11)], "b": [(7, 3, 12), (14, 4, 13)], "c": [(7, 1, 12)], "m": [(7, 5, 10)]}
ROWS["p"] = [(7, 9, 5)]
IN_TIME = "WITHIN INTERVAL '10' SECONDS"
SHARED = "TUMBLE(a, ts, INTERVAL '10' SECONDS) GROUP BY window_start, k"
#: A query, and by operator and relation: the input whose rows it holds, and its keys.
STORED = {
    f"SELECT a.k, y FROM a LEFT JOIN b ON a.k = b.k {IN_TIME}": "join_1.left a a.k, join_1.right b b.k",
    f"SELECT a.k, y FROM a JOIN b ON a.x < b.y {IN_TIME}": "join_1.left a -, join_1.right b -",
    f"SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.k {IN_TIME} SETTINGS multi_join = 'on'": (
        "join_1.input_0 a a.k, join_1.input_1 b b.k, join_1.input_2 c c.k"
    ),
    f"SELECT a.k FROM a RIGHT JOIN b ON a.k = b.k {IN_TIME} SETTINGS join_algorithm = 'sliding'": (
        "join_1.left a a.k, join_1.waiting None b.k"
    ),
    "SELECT a.k FROM a JOIN b ON a.k = b.k SETTINGS eviction = 'per_key', max_rows_per_key = 5": (
        "join_1.left a a.k, join_1.right b b.k"
    ),
    "SELECT a.k, y FROM a ASOF LEFT JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k": (
        "join_1.left a a.k, join_1.right b b.k"
    ),
    "SELECT a.k, w FROM a LEFT JOIN p FOR SYSTEM_TIME AS OF a.ts ON a.k = p.k SETTINGS table_retention = '1 day'": (
        "join_1.left a a.k, join_1.right p p.k, join_1.shown None -"
    ),
    "SELECT a.k, w FROM a LEFT JOIN p FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = p.k": "join_1.right p p.k",
    "SELECT a.x, v FROM a JOIN m ON a.x = m.v": (
        "join_1.left a a.x, join_1.right the operator before m.v, upsert_2.rows m m.k"
    ),
    "SELECT k, count(*) AS n FROM a GROUP BY k": "aggregate.shown a a.k, aggregate.totals a a.k",
    f"SELECT window_start, k, count(*) AS n FROM {SHARED}": "aggregate.totals a $g0 $g1",
    "SELECT k, e, count(*) AS n FROM a LATERAL VIEW explode(array(x, k)) t AS e GROUP BY k, e": (
        "aggregate.shown a a.k a.$t.e, aggregate.totals a a.k a.$t.e"
    ),
    "SELECT k, x FROM a QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= 2": "top_n.rows a a.k",
    "SELECT k, sum(x) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING) AS s FROM a EMIT FINAL": (
        "over_in_time.rows a a.k"
    ),
    "SELECT k, x FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '9' SECONDS)": "a'_sessions.rows a a.k",
    "SELECT k, x FROM a ORDER BY ts, x": "order.rows a -",
    "SELECT a.k, n FROM a JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) AS g ON g.k = a.k": (
        "g_aggregate.shown b b.k, g_aggregate.totals b b.k, join_1.left a a.k, join_1.right g g.k"
    ),
}


@pytest.mark.parametrize("query", STORED)
def test_what_is_stored_has_the_keys_of_its_operator(query: str) -> None:
    harness = Harness(*load_script(f"{STREAMS}{query};"), buckets=1)
    harness.step({name: StepInput(rows) for name, rows in ROWS.items() if harness.inputs_of(name)})
    described = {spec.name: describe(spec) for spec in harness._operators}
    found = {operator.name: operator for operator in operators_of(described, "plan.json")}
    assert ", ".join(sorted(_stored(harness, found))) == STORED[query]


def _stored(harness: Harness, operators: dict[str, OperatorText]) -> set[str]:
    stored = set()
    for spec in harness._operators:
        operator, store = operators[spec.name], harness._stores[spec.name, 0]
        for segment in read_manifest(store, spec.fingerprint, {}).segments:
            names = read_segment(store, segment).column_names
            keys = " ".join(map(operator.label, operator.key_columns(names))) or "-"
            stored.add(f"{spec.name}.{segment.relation} {operator.input_of(segment.relation)} {keys}")
    return stored


def test_times_that_are_plain_numbers() -> None:
    stream = "CREATE STREAM a (k INT, sn BIGINT, WATERMARK FOR sn AS sn) WITH (event_time_unit = 'row');"
    query = "SELECT window_start, count(*) AS n FROM TUMBLE(a, sn, 10) GROUP BY window_start;"
    for script, counts in (
        (stream + query, True),
        (f"{STREAMS}SELECT window_start, k, count(*) AS n FROM {SHARED};", False),
    ):
        specs = Harness(*load_script(script), buckets=1)._operators
        (operator,) = operators_of({spec.name: describe(spec) for spec in specs}, "plan.json")
        assert operator.counts_rows is counts
