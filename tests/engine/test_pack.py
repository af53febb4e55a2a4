"""Packing: frontiers over all rows, quarantine, filters and counters that add up."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns import TIME
from watersmeet.engine.frames import (
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameKind,
    decode_table,
    from_record_batch,
    to_record_batch,
)
from watersmeet.engine.pack import _gather, pack
from watersmeet.engine.specs import PackSpec
from watersmeet.kernels.api import NEVER

SCHEMA = pa.schema([(TIME, pa.int64()), ("s:v", pa.int64())])
BUCKETS = (0, 3, 5)


def spec(**fields: Any) -> PackSpec:
    given = {"source": "s", "operator": "join_1", "input": 1, "schema": SCHEMA, "hashes": ("h",)}
    return PackSpec(**{**given, "buckets": BUCKETS, "delay": 4, **fields})


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows with the fields t, keep, part, bad; v and h are the row's number."""
    n = range(len(rows))
    return pa.record_batch(
        {
            TIME: pa.array([row.get("t") for row in rows], pa.int64()),
            "s:v": pa.array(n, pa.int64()),
            "h": pa.array([i if i % 5 else None for i in n], pa.int64()),
            "$keep": pa.array([row.get("keep", True) for row in rows], pa.bool_()),
            "$part": pa.array([row.get("part", "") for row in rows], pa.string()),
            "$bad": pa.array([row.get("bad") for row in rows], pa.string()),
            "$raw": pa.array(
                [f"raw {i}" if row.get("bad") else None for i, row in zip(n, rows, strict=True)], pa.string()
            ),
        }
    )


def counters(frames: list[Frame]) -> dict[str, int]:
    payloads = [json.loads(f.payload)["counters"] for f in frames if f.kind is FrameKind.MARK and f.payload]
    assert len(payloads) <= 1
    return payloads[0] if payloads else {}


def frontiers(frames: list[Frame]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for frame in frames:
        if frame.kind is FrameKind.MARK and frame.frontier != NEVER:
            assert frame.part not in found.setdefault(frame.bucket, {})
            found[frame.bucket][frame.part] = frame.frontier
    return found


def packed(frames: list[Frame]) -> list[dict[str, Any]]:
    return [row for f in frames if f.kind is FrameKind.ROWS for row in decode_table(f.payload).to_pylist()]


def side(frames: list[Frame]) -> list[dict[str, Any]]:
    return [row for f in frames if f.kind is FrameKind.SIDE for row in decode_table(f.payload).to_pylist()]


def test_a_row_from_the_far_future_is_quarantined_and_moves_no_frontier() -> None:
    """The limit itself is allowed; a record without a time of arrival (-1 in Kafka, or NULL) may have any time."""
    rows: list[dict[str, Any]] = [
        {"t": 100},
        {"t": 110},
        {"t": 111},
        {"t": 10**15},
        {"t": 120},
        {"t": 130},
        {"t": None},
        {"t": 2**62 + 1},
    ]
    arrivals = pa.array([100, 100, 100, 100, -1, None, 100, 100], pa.int64())
    given = batch(rows).append_column("$arrival", arrivals)
    frames = list(pack([given], spec(max_future=10)))
    assert [each["reason"] for each in side(frames)] == [
        "the event time is more than 10 µs after the row arrived (max_future)",
        "the event time is more than 10 µs after the row arrived (max_future)",
        "the event time is NULL",
        "the event time is out of range",
    ]
    assert sorted(each[TIME] for each in packed(frames)) == [100, 110, 120, 130]
    assert frontiers(frames) == {bucket: {"": 126} for bucket in BUCKETS}
    assert counters(frames)["quarantined"] == 4


row = st.fixed_dictionaries(
    {
        "t": st.none() | st.integers(-50, 50),
        "keep": st.sampled_from([True, True, False, None]),
        "part": st.sampled_from(["p-0", "p-1"]),
        "bad": st.sampled_from([None, None, None, "not JSON"]),
    }
)


@given(st.lists(row, max_size=20), st.integers(1, 3))
def test_rows_in_are_rows_used_filtered_or_quarantined(rows: list[dict[str, Any]], cuts: int) -> None:
    whole = batch(rows)
    size = max(1, -(-len(rows) // cuts))
    frames = list(pack([whole.slice(start, size) for start in range(0, len(rows), size)], spec()))
    bad = [i for i, each in enumerate(rows) if each["bad"] or each["t"] is None]
    filtered = [i for i, each in enumerate(rows) if i not in bad and not each["keep"]]
    used = [i for i in range(len(rows)) if i not in bad and i not in filtered]
    counted = Counter(counters(frames))
    assert counted["in"] == len(rows)
    assert (counted["filtered"], counted["quarantined"]) == (len(filtered), len(bad))
    assert sorted(each["s:v"] for each in packed(frames)) == used
    assert {each["s:v"]: each[TIME] for each in packed(frames)} == {i: rows[i]["t"] for i in used}
    assert len(side(frames)) == len(bad)
    good = [each for i, each in enumerate(rows) if i not in bad]
    expected = {p: max(each["t"] for each in good if each["part"] == p) - 4 for p in {each["part"] for each in good}}
    assert frontiers(frames) == (dict.fromkeys(BUCKETS, expected) if expected else {})
    assert all(frame.input == 1 and frame.bucket in BUCKETS for frame in frames if frame.kind is not FrameKind.SIDE)
    assert list(from_record_batch(to_record_batch(frames))) == frames


def test_time_goes_on_when_the_filter_takes_every_row() -> None:
    frames = list(pack([batch([{"t": 3, "keep": False}, {"t": 90, "keep": None}])], spec()))
    assert packed(frames) == []
    assert frontiers(frames) == {bucket: {"": 86} for bucket in BUCKETS}
    assert counters(frames) == {"in": 2, "filtered": 2}


def test_a_malformed_row_tells_no_time() -> None:
    frames = list(pack([batch([{"t": 10**9, "bad": "cut off"}, {"t": 7}])], spec()))
    assert frontiers(frames)[3] == {"": 3}


def test_quarantined_rows_say_why_and_keep_their_text() -> None:
    frames = list(pack([batch([{"t": 1, "bad": "cut off"}, {"t": None}])], spec()))
    assert side(frames)[0] == {"kind": "quarantined", "source": "s", "reason": "cut off", "raw": "raw 0"}
    assert side(frames)[1]["reason"] == "the event time is NULL"


def test_a_row_without_the_time_of_this_query_names_its_column() -> None:
    frames = list(pack([batch([{"t": 1}, {"t": None}])], spec(dated_by="sn")))
    assert side(frames)[0]["reason"] == "sn, which dates the rows in this query, is NULL"


@pytest.mark.parametrize("extreme", [2**63 - 1, 2**62 + 1, -(2**62) - 1, -(2**63) + 1, -(2**63)])
def test_a_time_at_the_end_of_the_axis_is_quarantined(extreme: int) -> None:
    """A window added to it would overflow in the kernel: the batch and all its retries would fail."""
    frames = list(pack([batch([{"t": 5}, {"t": extreme}])], spec()))
    assert [row[TIME] for row in packed(frames)] == [5]
    assert side(frames)[0]["reason"] == "the event time is out of range"
    assert frontiers(frames)[3] == {"": 1}


def test_bad_rows_alone_reach_every_bucket() -> None:
    """Counters are sums over the buckets that took part in a batch: all of them do, or none."""
    frames = list(pack([batch([{"t": None}])], spec()))
    assert {frame.bucket for frame in frames if frame.kind is FrameKind.MARK} == set(BUCKETS)
    assert {frame.frontier for frame in frames if frame.kind is FrameKind.MARK} == {NEVER}


def test_no_rows_say_nothing() -> None:
    assert list(pack([], spec())) == []
    assert list(pack([batch([])], spec())) == []


def test_without_keys_all_rows_go_to_the_first_bucket() -> None:
    frames = list(pack([batch([{"t": i} for i in range(20)])], spec(hashes=())))
    assert {frame.bucket for frame in frames if frame.kind is FrameKind.ROWS} == {0}


def test_payloads_stay_small() -> None:
    many = pa.record_batch(
        {TIME: pa.array(range(900_000)), "s:v": pa.array(range(900_000)), "h": pa.array([0] * 900_000)}
    )
    frames = [frame for frame in pack([many], spec()) if frame.kind is FrameKind.ROWS]
    assert len(frames) == 4
    assert max(len(frame.payload) for frame in frames) <= MAX_PAYLOAD_BYTES + 4096
    assert sum(decode_table(frame.payload).num_rows for frame in frames) == 900_000


# -- streams that store their producer's frontier ----------------------------------------------------------------------


def stored(*rows: tuple[int | None, int | None]) -> pa.RecordBatch:
    """(time, stored frontier) rows."""
    return pa.record_batch(
        {
            TIME: pa.array([t for t, _ in rows], pa.int64()),
            "s:v": pa.array([0] * len(rows), pa.int64()),
            "h": pa.array([0] * len(rows), pa.int64()),
            "$frontier": pa.array([frontier for _, frontier in rows], pa.int64()),
        }
    )


def test_a_stored_frontier_counts_in_place_of_the_newest_time() -> None:
    frames = list(pack([stored((90, None), (None, 40), (None, 50))], spec()))
    assert frontiers(frames) == {bucket: {"": 50} for bucket in BUCKETS}
    assert counters(frames)["in"] == 1
    assert side(frames) == []


def test_a_stored_frontier_that_comes_alone_counts_too() -> None:
    """The producer reported only a time: readers must not wait for its next row."""
    frames = list(pack([stored((None, 50))], spec()))
    assert frontiers(frames) == {bucket: {"": 50} for bucket in BUCKETS}


def test_large_rows_are_packed_few_at_a_time() -> None:
    """At least eight megabytes at once and fewer than sixteen, where smaller rows are packed by 32."""
    values = pa.table({"v": pa.array([bytes([number]) * (1 << 20) for number in range(40)])})
    sizes = [table.num_rows for table in _gather(values.to_batches())]
    assert sum(sizes) == 40
    assert max(sizes) < 16
