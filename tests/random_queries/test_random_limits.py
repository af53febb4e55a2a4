"""LIMIT without ORDER BY over rows that come, or change, in random batches with restarts: any n rows, and no others."""

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

_STREAM = "CREATE STREAM a (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts){kind};"
_APPENDS = " WITH (event_time_unit = 's')"
_CHANGES = " PRIMARY KEY (k) WITH (event_time_unit = 's') SETTINGS mode = 'versioned_kv'"
#: What LIMIT is over, and whether its rows only come if those of the stream do.
QUERIES = {
    "rows": ("SELECT k, v, ts FROM a", True),
    "filtered": ("SELECT k, ts FROM a WHERE v > 1", True),
    "groups": ("SELECT v, count(*) AS n, max(ts) AS last FROM a GROUP BY v", False),
    "different rows": ("SELECT DISTINCT v FROM a", True),
}
_ROWS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=4)
_BATCHES = st.lists(st.tuples(_ROWS, st.booleans()), min_size=1, max_size=6)


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=30 if ALL else 2, deadline=None, derandomize=True)
@given(batches=_BATCHES, limit=st.integers(1, 4), skipped=st.integers(0, 2))
def test_any_rows_up_to_the_limit(
    name: str, changing: bool, batches: list[tuple[Any, bool]], limit: int, skipped: int
) -> None:
    query, appends = QUERIES[name]
    limited = f"{query} LIMIT {limit}" + (f" OFFSET {skipped}" if skipped else "")
    harness = Harness(*load_script(f"{_STREAM.format(kind=_CHANGES if changing else _APPENDS)} {limited};"))
    found: Counter[Any] = Counter()
    fed: list[tuple[int, int, int]] = []
    for time, (rows, restarts) in enumerate(batches):
        if restarts:
            harness.restart()
        fed += [(*row, time) for row in rows]
        outcome = harness.step({"a": StepInput([(*row, time) for row in rows])} if rows else {})
        gone = Counter(canonical_row(row) for weight, row in outcome.changes if weight < 0)
        for weight, row in outcome.changes:
            found[canonical_row(row)] += weight
        there = _answer(query, fed, changing)
        assert min(found.values(), default=0) >= 0
        assert found <= there
        assert found.total() == min(limit, max(there.total() - skipped, 0))
        if appends and not changing:
            assert not gone
        elif not skipped:  # a row leaves only because it is there no more
            assert all(there[row] < found[row] + count for row, count in gone.items())


@settings(max_examples=30 if ALL else 4, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.none() | st.integers(1, 5), st.integers(0, 3), st.just(1)), min_size=1), data=st.data()
)
def test_the_rows_of_a_batch_may_come_in_any_order(rows: list[Any], data: st.DataObject) -> None:
    """A batch that is tried again has the same rows, but its frames may come in another order."""
    script = f"{_STREAM.format(kind=_APPENDS)} SELECT k, v FROM a LIMIT 2 OFFSET 1;"
    shuffled = data.draw(st.permutations(rows))
    first, other = (Harness(*load_script(script)).step({"a": StepInput(each)}).changes for each in (rows, shuffled))
    assert sorted(map(str, first)) == sorted(map(str, other))


def _answer(sql: str, fed: list[tuple[int, int, int]], changing: bool) -> Counter[Any]:
    """The results without LIMIT over all rows, or over the newest of each key, with how often each is there."""
    rows = list({row[0]: row for row in fed}.values()) if changing else fed
    with duckdb.connect() as connection:
        kinds = {"k": pa.int32(), "v": pa.int32(), "ts": pa.int64()}
        columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds.values())]
        connection.register("a", pa.table(dict(zip(kinds, columns, strict=True))))
        return Counter(map(canonical_row, connection.execute(sql).fetchall()))
