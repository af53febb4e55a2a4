"""Elements of arrays as rows, computed in the worker: against DuckDB's UNNEST, which has another code for it."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import ID
from watersmeet.engine.explodes import ExplodedColumns, with_elements
from watersmeet.engine.pack import RAW_TEXT
from watersmeet.engine.projection import Projection, project

STRUCT = pa.struct([("name", pa.string()), ("count", pa.int64())])
_STRUCTS = st.fixed_dictionaries({"name": st.none() | st.text(max_size=2), "count": st.none() | st.integers(-9, 9)})
_ARRAYS = st.none() | st.lists(st.none() | _STRUCTS, max_size=4)
_MAPS = st.none() | st.dictionaries(st.text("abc", min_size=1, max_size=1), st.none() | st.integers(0, 9))


def _explode(array: str, *fields: str, last: bool = True) -> ExplodedColumns:
    return ExplodedColumns(array, "p", "e", tuple((f"f_{field}", field) for field in fields), last)


def _rows(arrays: list[Any], kind: pa.DataType) -> pa.Table:
    """Rows in two chunks, the second with an offset into its buffers, as slices of larger batches have."""
    whole = pa.table({"id": pa.array(range(len(arrays)), pa.int64()), "a": pa.array(arrays, kind)})
    half = len(arrays) // 2
    return pa.concat_tables([whole.slice(0, half), whole.slice(half)])


def _none(rows: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])


@given(st.lists(_ARRAYS, min_size=1, max_size=6))
def test_structs_of_an_array(arrays: list[Any]) -> None:
    rows = _rows(arrays, pa.list_(STRUCT))
    found = with_elements(rows, (_explode("a", "name", "count"),), _none(rows))
    assert found.column_names == ["id", "p", "e", "f_name", "f_count"]
    unnested = duckdb.sql(
        "SELECT id, CAST(o - 1 AS INTEGER) AS p, e, e.name AS f_name, e.count AS f_count"
        " FROM rows LEFT JOIN UNNEST(a) WITH ORDINALITY AS t(e, o) ON TRUE ORDER BY id, o"
    )
    assert unnested is not None
    assert found.to_pylist() == unnested.to_arrow_table().to_pylist()
    assert found["p"].type == pa.int32()


@given(st.lists(_MAPS, min_size=1, max_size=6))
def test_entries_of_a_map(maps: list[dict[str, int | None] | None]) -> None:
    rows = _rows([None if each is None else list(each.items()) for each in maps], pa.map_(pa.string(), pa.int64()))
    found = with_elements(rows, (_explode("a", "key", "value"),), _none(rows))
    assert [(row["id"], row["p"], row["f_key"], row["f_value"]) for row in found.to_pylist()] == [
        (id, place, key, value)
        for id, each in enumerate(maps)
        for place, (key, value) in (enumerate(each.items()) if each else [(None, (None, None))])
    ]


@given(st.lists(st.none() | st.lists(st.none() | st.lists(st.integers(0, 9), max_size=3), max_size=3), max_size=5))
def test_elements_of_elements_and_the_names_of_rows(arrays: list[Any]) -> None:
    rows = _rows(arrays, pa.list_(pa.list_(pa.int64())))
    rows = rows.append_column(ID, pa.array([f"n{place}" for place in range(len(arrays))], pa.string()))
    inner = ExplodedColumns("e", "q", "v", (), last=False)
    found = with_elements(rows, (_explode("a"), inner), _none(rows)).to_pylist()
    expected = [
        (f"n{id}:{'' if p is None else p}:{'' if q is None else q}", value)
        for id, array in enumerate(arrays)
        for p, element in (enumerate(array) if array else [(None, None)])
        for q, value in (enumerate(element) if element else [(None, None)])
    ]
    assert [(row[ID], row["v"]) for row in found] == expected
    assert len({row[ID] for row in found}) == len(found)


@pytest.mark.parametrize("last", [True, False])
def test_the_array_stays_only_where_it_is_read_again(last: bool) -> None:
    rows = _rows([[1, 2], []], pa.list_(pa.int64()))
    found = with_elements(rows, (_explode("a", last=last),), _none(rows))
    assert ("a" in found.column_names) is not last
    assert found.num_rows == 3


def test_a_bad_row_is_there_once_with_its_text() -> None:
    spec = Projection(
        time="ts",
        scale=1,
        taken=(("o:e", "e", pa.int64()),),
        hashes=(("h", (("e", pa.int64()),)),),
        reads=("ts", "a"),
        record=("ts", "a"),
        explodes=(_explode("a"),),
        keep='"p" IS NOT NULL',
    )
    rows = pa.table({"ts": pa.array([1, None, 3], pa.int64()), "a": pa.array([[7, 8], [9, 9], []])})
    found = project(rows, spec)
    assert found is not None
    assert found.select(["$t", "o:e", "$keep", RAW_TEXT]).to_pylist() == [
        {"$t": 1, "o:e": 7, "$keep": True, RAW_TEXT: None},
        {"$t": 1, "o:e": 8, "$keep": True, RAW_TEXT: None},
        {"$t": None, "o:e": None, "$keep": False, RAW_TEXT: '{"a":[9,9]}'},
        {"$t": 3, "o:e": None, "$keep": False, RAW_TEXT: None},
    ]
