"""HOP and CUMULATE over rows that come, or change, in random batches with restarts, against all windows in DuckDB."""

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
CREATE STREAM a (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts){kind};
CREATE STREAM b (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts){kind};
"""
_APPENDS = " WITH (event_time_unit = 's')"
_CHANGES = " PRIMARY KEY (k) WITH (event_time_unit = 's') SETTINGS mode = 'versioned_kv'"
_HOP = "HOP({}, ts, INTERVAL '4' SECONDS, INTERVAL '10' SECONDS, INTERVAL '1' SECOND)"
_CUMULATE = "CUMULATE({}, ts, INTERVAL '4' SECONDS, INTERVAL '12' SECONDS)"
#: The same: every window there is, and those that hold the row's time.
_ALL_HOPS = (
    "(SELECT t.*, s AS window_start, s + 10 AS window_end FROM {} AS t, range(-11, 100, 4) AS r(s)"
    " WHERE ts >= s AND ts < s + 10)"
)
_ALL_CUMULATES = (
    "(SELECT t.*, s AS window_start, s + n AS window_end FROM {} AS t, range(0, 100, 12) AS r(s),"
    " range(4, 16, 4) AS q(n) WHERE ts >= s AND ts < s + n)"
)
#: Queries, with the windows of either kind in place of ``{hop}`` and ``{cumulate}``; of what they read of b and of a.
QUERIES = {
    "rows": "SELECT k, v, window_start AS s, window_end AS e FROM {hop_b}",
    "filtered": "SELECT k, window_end AS e FROM {cumulate_of_some} AS f",
    "groups": "SELECT window_start AS s, count(*) AS n, sum(v) AS t FROM {hop_b} GROUP BY window_start",
    "growing groups": (
        "SELECT window_end AS e, min(v) AS least, count(DISTINCT k) AS n FROM {cumulate_b} GROUP BY window_end"
    ),
    "joined windows": (
        "SELECT a.v AS one, b.v AS other, a.window_end AS e FROM {hop_a} AS a"
        " JOIN {hop_b} AS b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k"
    ),
    "padded": (
        "SELECT a.v AS one, b.v AS other, b.window_end AS e FROM a LEFT JOIN {cumulate_b} AS b"
        " ON a.k = b.k AND a.ts = b.window_start"
    ),
}
_ROWS = st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 4)), max_size=3)
#: Batches: how much later they are, the rows of each stream, and whether the query restarts before them.
_BATCHES = st.lists(st.tuples(st.integers(0, 7), _ROWS, _ROWS, st.booleans()), min_size=1, max_size=5)


def _text(query: str, hop: str, cumulate: str) -> str:
    windows = {f"hop_{each}": hop.format(each) for each in "ab"} | {"cumulate_b": cumulate.format("b")}
    return query.format(cumulate_of_some=cumulate.format("(SELECT k, ts FROM b WHERE v > 0)"), **windows)


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=40 if ALL else 2, deadline=None, derandomize=True)
@given(batches=_BATCHES)
def test_windows_are_those_of_duckdb(name: str, changing: bool, batches: list[tuple[int, Any, Any, bool]]) -> None:
    query = _text(QUERIES[name], _HOP, _CUMULATE)
    emit = "" if changing else " EMIT CHANGELOG"
    harness = Harness(*load_script(f"{_STREAMS.format(kind=_CHANGES if changing else _APPENDS)} {query}{emit};"))
    found: Counter[Any] = Counter()
    fed: dict[str, list[tuple[Any, ...]]] = {"a": [], "b": []}
    time = 0
    for later, of_a, of_b, restarts in batches:
        time += later
        if restarts:
            harness.restart()
        rows = {"a": [(*row, time) for row in of_a], "b": [(*row, time) for row in of_b]}
        outcome = harness.step({stream: StepInput(each) for stream, each in rows.items() if each})
        for weight, row in outcome.changes:
            found[canonical_row(row)] += weight
        for stream, each in rows.items():
            fed[stream] += each
    expected = _answer(_text(QUERIES[name], _ALL_HOPS, _ALL_CUMULATES), fed, changing)
    assert {row: n for row, n in found.items() if n} == expected


def _answer(sql: str, fed: dict[str, list[tuple[Any, ...]]], changing: bool) -> dict[Any, int]:
    """The results over all rows, or over the newest of each key, with how often each is there."""
    schema = {"k": pa.int32(), "v": pa.int32(), "ts": pa.int64()}
    with duckdb.connect() as connection:
        for stream, given_rows in fed.items():
            rows = list({row[0]: row for row in given_rows}.values()) if changing else given_rows
            columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(schema.values())]
            connection.register(stream, pa.table(dict(zip(schema, columns, strict=True))))
        return dict(Counter(map(canonical_row, connection.execute(sql).fetchall())))
