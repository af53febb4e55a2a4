"""Rows of a source into frames (runs in a Spark task, or in the harness).

Frontiers are taken over all rows, before the filter drops any: otherwise a selective WHERE would stall time.  Rows
that are malformed or have no event time go out as quarantined rows; all are counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.engine.frames import Frame, FrameKind, mark_frame, row_frames, side_frame, side_rows
from watersmeet.engine.hot_keys import NO_ENTRY, Entry, HotKeys, Sampled, copied, place
from watersmeet.engine.routing import home_indexes, key_hashes, split_by_bucket
from watersmeet.engine.specs import PackSpec
from watersmeet.errors import ConnectorError
from watersmeet.kernels.api import NEVER

#: Times further from the epoch than this are out of range: a window added to one could overflow.
GREATEST_TIME = 2**62
#: The column with the text of rows that may have to be set aside.
RAW_TEXT = "$raw"
_KEEP, _PART, _BAD, _STORED = "$keep", "$part", "$bad", "$frontier"
_FLUSH_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class Told:
    """What a task tells of its rows, beside frontiers: counters, the newest event time, and what it knows of hot keys.

    That is the entry of their log by which it has packed, how many rows it has seen since, and about how many of these
    have keys that may be hot.
    """

    counters: Counter[str] = field(default_factory=Counter)
    newest: int = NEVER
    hot_keys: int | None = None
    rows: int = 0
    frequent: dict[int, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """As the payload of a mark."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)}).encode()

    @classmethod
    def from_json(cls, payload: bytes) -> Told:
        """What ``to_json`` has written."""
        told = cls(**json.loads(payload))
        told.counters = Counter(told.counters)
        told.frequent = {int(key): rows for key, rows in told.frequent.items()}
        return told


@dataclass(slots=True)
class _Task:
    """What one task has seen so far."""

    told: Told = field(default_factory=Told)
    frontiers: dict[str, int] = field(default_factory=dict)  # by part
    sampled: Sampled = field(default_factory=Sampled)


def pack(batches: Iterable[pa.RecordBatch], spec: PackSpec, hot_keys: Entry = NO_ENTRY) -> Iterator[Frame]:
    """Frames of the rows, then marks with the task's frontiers to every bucket, what else it tells to the first.

    Every bucket gets a mark, if only one that says nothing: what they count is summed over all that took the step.
    """
    task = _Task()
    for rows in _gather(batches):
        yield from _pack_rows(rows, spec, hot_keys.keys, task)
    if not task.told.counters["in"] and not task.frontiers:
        return
    task.told.hot_keys = hot_keys.batch
    task.told.rows = task.sampled.rows
    task.told.frequent = task.sampled.frequent(len(spec.buckets))
    for part, frontier in (task.frontiers or {"": NEVER}).items():
        for bucket in spec.buckets:
            yield mark_frame(bucket, spec.input, part, frontier)
    yield mark_frame(spec.buckets[0], spec.input, "", NEVER, task.told.to_json())


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together to tables of some size: each compute call below costs the same for few rows as for many."""
    held: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        nbytes += batch.nbytes
        if nbytes >= _FLUSH_BYTES:
            yield pa.Table.from_batches(held)
            held, nbytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _pack_rows(rows: pa.Table, spec: PackSpec, hot_keys: HotKeys, task: _Task) -> Iterator[Frame]:
    counters = task.told.counters
    stores_frontier = _STORED in rows.column_names
    if stores_frontier:
        rows = _take_markers(rows, task.frontiers)
    counters["in"] += rows.num_rows
    times = rows[TIME]
    bad = pc.fill_null(pc.or_(pc.greater(times, GREATEST_TIME), pc.less(times, -GREATEST_TIME)), True)
    if _BAD in rows.column_names:
        bad = pc.or_(bad, rows[_BAD].is_valid())
    if pc.any(bad).as_py():
        quarantined = rows.filter(bad)
        rows = rows.filter(pc.invert(bad))
        counters["quarantined"] += quarantined.num_rows
        side = _side_rows(quarantined, spec)
        if spec.fails_on_bad:
            raise _bad_row(side)
        yield side_frame(side, bucket=spec.buckets[0])
    if rows.num_rows:
        task.told.newest = max(task.told.newest, pc.max(rows[TIME]).as_py())
    if not stores_frontier:
        _observe(rows, spec, task)
    if _KEEP in rows.column_names:
        keep = pc.fill_null(rows[_KEEP], False)
        kept = rows.filter(keep)
        counters["filtered"] += rows.num_rows - kept.num_rows
        rows = kept
    if spec.sequence is not None:
        rows = _number_within_place(rows, spec.sequence, counters["in"])
    schema = spec.schema.append(pa.field(RAW_TEXT, pa.string())) if spec.keeps_late else spec.schema
    hashes = key_hashes(rows, spec.hashes)
    rows = rows.select(schema.names).cast(schema)
    indexes = home_indexes(hashes, len(spec.buckets))
    if spec.spreads:
        task.sampled.add(hashes)
        yield from _copies(rows, hashes, indexes, spec, hot_keys)
        place(indexes, hashes, rows[TIME].to_numpy(), hot_keys, spec.input, len(spec.buckets))
    for index, of_bucket in split_by_bucket(rows, indexes, len(spec.buckets)):
        yield from row_frames(of_bucket, bucket=spec.buckets[index], input=spec.input)


def _copies(
    rows: pa.Table, hashes: np.ndarray, homes: np.ndarray, spec: PackSpec, hot_keys: HotKeys
) -> Iterator[Frame]:
    """Rows of hot keys for the buckets that are not their home."""
    chosen = copied(hashes, hot_keys, spec.input)
    if chosen is None:
        return
    rows, homes = rows.select(spec.schema.names).filter(pa.array(chosen)), homes[chosen]
    for index, bucket in enumerate(spec.buckets):
        yield from row_frames(
            rows.filter(pa.array(homes != index)), bucket=bucket, input=spec.input, kind=FrameKind.COPIES
        )


def _number_within_place(rows: pa.Table, sequence: str, seen: int) -> pa.Table:
    """Rows may share their place in the source (lines of one block): their order in the task tells them apart."""
    first = seen - rows.num_rows
    numbers = np.arange(first, first + rows.num_rows, dtype=">i8").tobytes()
    suffix = pa.Array.from_buffers(pa.binary(8), rows.num_rows, [None, pa.py_buffer(numbers)]).cast(pa.binary())
    numbered = pc.binary_join_element_wise(rows[sequence], suffix, pa.scalar(b"", pa.binary()))
    return rows.set_column(rows.column_names.index(sequence), sequence, numbered)


def _observe(rows: pa.Table, spec: PackSpec, task: _Task) -> None:
    """Per part: the newest event time seen, less delay and grace."""
    if rows.num_rows == 0:
        return
    if _PART not in rows.column_names:
        _raise_to(task.frontiers, "", task.told.newest - spec.delay)
        return
    by_part = pa.table({"part": rows[_PART], "t": rows[TIME]}).group_by("part").aggregate([("t", "max")])
    for part, time in zip(by_part["part"].to_pylist(), by_part["t_max"].to_pylist(), strict=True):
        _raise_to(task.frontiers, part, time - spec.delay)


def _take_markers(rows: pa.Table, frontiers: dict[str, int]) -> pa.Table:
    """Read and drop the rows in which a stream's producer stored its frontier."""
    stored = rows[_STORED]
    if stored.null_count < len(stored):
        _raise_to(frontiers, "", pc.max(stored).as_py())
        rows = rows.filter(stored.is_null())
    return rows


def _raise_to(frontiers: dict[str, int], part: str, frontier: int) -> None:
    frontiers[part] = max(frontiers.get(part, NEVER), frontier)


def _side_rows(rows: pa.Table, spec: PackSpec) -> pa.Table:
    """Quarantined rows with their reason and raw text."""
    of_time = pc.if_else(rows[TIME].is_null(), "the event time is NULL", "the event time is out of range")
    reason = pc.coalesce(rows[_BAD], of_time) if _BAD in rows.column_names else of_time
    return side_rows("quarantined", spec.source, reason, rows[RAW_TEXT])


def _bad_row(side: pa.Table) -> ConnectorError:
    first = side.slice(0, 1).to_pylist()[0]
    return ConnectorError(
        f"{first['source']} brought a row that cannot be read: {first['reason']}",
        detail=first["raw"],
        hint="mend the source, or set bad rows aside with SETTINGS bad_rows = 'quarantine'",
    )
