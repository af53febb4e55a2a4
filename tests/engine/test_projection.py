"""Projection in the worker: event times, hashes, filters, computed columns, changes and texts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from watersmeet.columns import SEQUENCE, TIME, TP_DELTA, TP_TIME
from watersmeet.engine.hashing import xxhash64
from watersmeet.engine.pack import GREATEST_TIME, RAW_TEXT
from watersmeet.engine.projection import Changes, Projection, project, unusable

INSTANT = pa.timestamp("us", tz="UTC")


def spec(**fields: Any) -> Projection:
    given: dict[str, Any] = {
        "time": "ts",
        "scale": 1000,
        "taken": (("s:id", "id", pa.int64()),),
        "hashes": (("h", (("id", pa.int64()),)),),
        "reads": ("id", "ts"),
        "record": ("id", "ts"),
        **fields,
    }
    return Projection(**given)


def rows(**columns: list[Any]) -> pa.Table:
    given = {"id": [1, 2], "ts": [10, 20], **columns}
    return pa.table({name: pa.array(values) for name, values in given.items()}, schema=None)


def test_columns_hashes_and_times() -> None:
    given = rows().append_column(SEQUENCE, pa.array([b"a", b"b"]))
    found = project(given, spec(taken=(("s:id", "id", pa.int64()),), sequence="s:$seq"))
    assert found is not None
    assert found.select([TIME, "s:id", "s:$seq", RAW_TEXT]).to_pylist() == [
        {TIME: 10_000, "s:id": 1, "s:$seq": b"a", RAW_TEXT: None},
        {TIME: 20_000, "s:id": 2, "s:$seq": b"b", RAW_TEXT: None},
    ]
    assert found["h"].to_pylist() == xxhash64([given["id"]]).tolist()


def test_computed_columns_and_the_filter() -> None:
    found = project(rows(), spec(computed=(("s:$e0", '"id" + 1', pa.int64()),), keep='("id" > 1)'))
    assert found is not None
    assert found["s:$e0"].to_pylist() == [2, 3]
    assert found["$keep"].to_pylist() == [False, True]


def test_a_time_long_after_arrival_needs_the_text_of_its_row() -> None:
    arrivals = pa.array([9_000, 9_000], pa.timestamp("us", "UTC"))
    given = rows(ts=[10, 12]).append_column(TP_TIME, arrivals)
    found = project(given, spec(max_future=2_000, reads=("id", "ts", TP_TIME)))
    assert found is not None
    assert found["$arrival"].to_pylist() == [9_000, 9_000]
    assert found[RAW_TEXT].to_pylist() == [None, '{"id":2,"ts":12}']
    assert unusable(given, spec(max_future=2_000)).to_pylist() == [False, True]


def test_times_that_cannot_be_used() -> None:
    given = rows(id=[1, 2, 3, 4], ts=[1, None, 2**62, -(2**63)])
    found = project(given, spec())
    assert found is not None
    assert found[TIME].to_pylist() == [1000, None, None, None]
    texts = [None if text is None else json.loads(text) for text in found[RAW_TEXT].to_pylist()]
    assert texts == [None, {"id": 2}, {"id": 3, "ts": 2**62}, {"id": 4, "ts": -(2**63)}]
    late = project(rows(id=[1], ts=[GREATEST_TIME + 1]), spec(scale=1))
    assert late is not None
    assert json.loads(late[RAW_TEXT][0].as_py()) == {"id": 1, "ts": GREATEST_TIME + 1}


def test_the_text_of_a_row_needs_all_columns() -> None:
    more = spec(record=("id", "ts", "note", "at"))
    assert project(rows(), more) is not None
    assert project(rows(ts=[1, None]), more) is None
    at = pa.array([datetime(2026, 11, 21, 1, 2, 3, 4000, UTC)] * 2, INSTANT)
    whole = rows(ts=[1, None], note=["ü", "ü"]).append_column("at", at)
    found = project(whole, more)
    assert found is not None
    assert found[RAW_TEXT].to_pylist() == [None, '{"id":2,"note":"ü","at":"2026-11-21T01:02:03.004Z"}']


def test_changes() -> None:
    changing = spec(taken=(("s:_tp_delta", TP_DELTA, pa.int8()),), changes=Changes(("id",)))
    found = project(rows(id=[1, None]), changing)
    assert found is not None
    assert found["s:_tp_delta"].to_pylist() == [1, None]
    assert found["$bad"].to_pylist() == [None, "primary key column id is NULL"]


def test_declared_deltas() -> None:
    changing = spec(taken=(("s:_tp_delta", TP_DELTA, pa.int8()),), changes=Changes(("id",), declares_delta=True))
    given = rows(id=[1, 2, 3, 4, None], ts=[1] * 5, _tp_delta=[1, -1, 2, None, 1])
    found = project(given, changing)
    assert found is not None
    assert found["s:_tp_delta"].to_pylist() == [1, -1, None, None, None]
    assert found["$bad"].to_pylist() == [
        None,
        None,
        "_tp_delta is 2: a change is +1 or -1",
        "_tp_delta is NULL: a change is +1 or -1",
        "primary key column id is NULL",
    ]
