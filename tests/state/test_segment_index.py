"""The index by key and time finds, whatever the chunks, the newest rows of each key at or before each time."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import TIME
from watersmeet.state import segment_index
from watersmeet.state.segment_index import SegmentIndex

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 20)), min_size=1, max_size=60)


@pytest.mark.parametrize("chunk", [1, 2, 32])
@given(rows=ROWS, probes=ROWS, keyed=st.booleans())
def test_the_newest_row_of_a_key_is_among_those_found(
    chunk: int, rows: list[tuple[int, int]], probes: list[tuple[int, int]], keyed: bool
) -> None:
    con = duckdb.connect()
    table = pa.table({"k": [k for k, _ in rows], TIME: [t for _, t in rows], "n": range(len(rows))})
    asked = pa.table({"k": [k for k, _ in probes], TIME: [t for _, t in probes]})
    con.register("given", table)
    con.execute("CREATE TABLE stored AS SELECT * FROM given")
    con.register("probes", asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_index, "CHUNK", chunk)
        index = SegmentIndex(con, "stored", ["k"] if keyed else [])
    found = {n for _, _, n in con.sql(index.as_of("probes")).fetchall()}
    for key, time in probes:
        before = [(t, n) for n, (k, t) in enumerate(rows) if t <= time and (k == key or not keyed)]
        newest = max((t for t, _ in before), default=None)
        assert {n for t, n in before if t == newest} <= found
    index.drop()
    assert con.sql("SELECT table_name FROM duckdb_tables()").fetchall() == [("stored",)]


def test_few_probes_read_few_rows() -> None:
    con = duckdb.connect()
    con.execute(f'CREATE TABLE stored AS SELECT i % 3 AS k, i AS "{TIME}" FROM range(100000) AS r(i)')
    con.execute(f'CREATE TABLE probes AS SELECT 1 AS k, 50000 AS "{TIME}"')
    found = con.sql(SegmentIndex(con, "stored", ["k"]).as_of("probes")).fetchall()
    assert (1, 49999) in found
    assert len(found) <= 3 * segment_index.CHUNK
