"""Queries over elements of random arrays, in random batches with restarts, against DuckDB's UNNEST of the last rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ALL
from watersmeet.testing.cells import canonical_row
from watersmeet.testing.harness import Harness, StepInput, load_script

_STREAMS = """
CREATE STREAM o (id INT, items ARRAY<STRUCT<sku: STRING, tags: ARRAY<INT>>>, ts BIGINT, WATERMARK FOR ts AS ts){key};
CREATE STREAM s (sku STRING, n INT, ts BIGINT, WATERMARK FOR ts AS ts){other};
"""
_APPENDS = " WITH (event_time_unit = 's')"
_CHANGES = " PRIMARY KEY ({}) WITH (event_time_unit = 's') SETTINGS mode = 'versioned_kv'"
#: Queries, and the same for DuckDB where that has another form.
QUERIES = {
    "positions": (
        "SELECT id, pos, item.sku AS sku FROM o LATERAL VIEW posexplode(items) t AS pos, item",
        "SELECT id, n - 1, item.sku FROM o, UNNEST(items) WITH ORDINALITY AS t(item, n)",
    ),
    "outer": (
        "SELECT id, n, item.sku AS k FROM o LEFT JOIN UNNEST(items) WITH ORDINALITY AS t(item, n) ON TRUE WHERE id > 1",
        None,
    ),
    "outer with a condition": (
        (
            "SELECT id, item.sku AS k FROM o"
            " LEFT JOIN UNNEST(items) AS t(item) ON item.sku = 'a' OR item.sku IS NULL AND id > 1"
        ),
        (
            "SELECT id, item.sku FROM o, UNNEST(items) AS t(item) WHERE item.sku = 'a' OR item.sku IS NULL AND id > 1"
            " UNION ALL SELECT id, NULL FROM o WHERE NOT EXISTS (SELECT 1 FROM (SELECT UNNEST(o.items) AS item)"
            " WHERE item.sku = 'a' OR item.sku IS NULL AND id > 1)"
        ),
    ),
    "stack": (
        "SELECT id, a, b FROM o LATERAL VIEW stack(2, id, size(items), id + 5) t AS a, b",
        "SELECT id, id, len(items) FROM o UNION ALL SELECT id, id + 5, NULL FROM o",
    ),
    "two levels": (
        "SELECT id, sku, tag FROM o LATERAL VIEW inline(items) t LATERAL VIEW OUTER explode(tags) u AS tag",
        "SELECT id, item.sku, tag FROM o, UNNEST(items) AS t(item) LEFT JOIN UNNEST(item.tags) AS u(tag) ON TRUE",
    ),
    "groups": (
        "SELECT item.sku AS sku, count(*) AS n, min(id) AS least FROM o, UNNEST(items) AS t(item) GROUP BY item.sku",
        None,
    ),
    "distinct": (
        "SELECT DISTINCT sku FROM (SELECT inline(items) FROM o)",
        "SELECT DISTINCT item.sku FROM o, UNNEST(items) AS t(item)",
    ),
    "a join by elements": (
        "SELECT id, pos, s.n FROM (SELECT id, posexplode(items) AS (pos, item) FROM o) LEFT JOIN s ON s.sku = item.sku",
        "SELECT id, p - 1, s.n FROM o, UNNEST(items) WITH ORDINALITY AS t(item, p) LEFT JOIN s ON s.sku = item.sku",
    ),
    "elements of joined rows": (
        "SELECT s.sku, o.id, item.sku AS other FROM s JOIN o ON s.n = o.id, UNNEST(o.items) AS t(item)",
        None,
    ),
}

_TAGS = st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2)
_ITEMS = st.lists(st.fixed_dictionaries({"sku": st.sampled_from([None, "a", "b"]), "tags": _TAGS}), max_size=3)
_ORDERS = st.tuples(st.integers(1, 3), st.none() | _ITEMS)
_STOCK = st.tuples(st.sampled_from("ab"), st.integers(1, 3))
#: Batches: the rows of each stream, and whether the query restarts before them.
_BATCHES = st.lists(
    st.tuples(st.lists(_ORDERS, max_size=3), st.lists(_STOCK, max_size=2), st.booleans()), min_size=1, max_size=4
)


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=40 if ALL else 2, deadline=None, derandomize=True)
@given(batches=_BATCHES)
def test_elements_are_those_of_duckdb(name: str, changing: bool, batches: list[tuple[Any, Any, bool]]) -> None:
    query, for_duckdb = QUERIES[name]
    key, other = (_CHANGES.format("id"), _CHANGES.format("sku")) if changing else (_APPENDS, _APPENDS)
    harness = Harness(*load_script(f"{_STREAMS.format(key=key, other=other)} {query};"))
    found: Counter[Any] = Counter()
    fed: dict[str, list[tuple[Any, ...]]] = {"o": [], "s": []}
    for time, (orders, stock, restarts) in enumerate(batches):
        if restarts:
            harness.restart()
        rows = {"o": [(*row, time) for row in orders], "s": [(*row, time) for row in stock]}
        outcome = harness.step({stream: StepInput(each) for stream, each in rows.items() if each})
        for weight, row in outcome.changes:
            found[canonical_row(row)] += weight
        for stream, each in rows.items():
            fed[stream] += each
    assert {row: n for row, n in found.items() if n} == _answer(for_duckdb or query, fed, changing)


def _answer(sql: str, fed: dict[str, list[tuple[Any, ...]]], changing: bool) -> dict[Any, int]:
    """The results over all rows, or over the newest of each key, with how often each is there."""
    kinds = {"sku": pa.string(), "tags": pa.list_(pa.int32())}
    schemas = {
        "o": {"id": pa.int32(), "items": pa.list_(pa.struct(list(kinds.items()))), "ts": pa.int64()},
        "s": {"sku": pa.string(), "n": pa.int32(), "ts": pa.int64()},
    }
    with duckdb.connect() as connection:
        for stream, schema in schemas.items():
            rows = list({row[0]: row for row in fed[stream]}.values()) if changing else fed[stream]
            columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(schema.values())]
            connection.register(stream, pa.table(dict(zip(schema, columns, strict=True))))
        return dict(Counter(map(canonical_row, connection.execute(sql).fetchall())))
