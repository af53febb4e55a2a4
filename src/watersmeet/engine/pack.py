"""Rows of a source into frames, in a Spark task or in the harness.

Rows that are malformed or have no event time are quarantined first.  Watermarks are taken over all other rows, before
the filter drops any: otherwise a selective WHERE would stall event time.  All rows are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIE, TIME
from watersmeet.engine.frames import Frame, FrameKind, mark_frame, row_frames, side_frames, side_rows
from watersmeet.engine.gathering import gathered
from watersmeet.engine.hot_keys import NO_ENTRY, Entry, HotKeys, KeySample, assign_spread_rows, rows_to_copy
from watersmeet.engine.pack_report import PackReport
from watersmeet.engine.routing import home_indexes, key_hashes, split_by_bucket
from watersmeet.engine.specs import PackSpec
from watersmeet.engine.ties import last_tie, with_ties
from watersmeet.errors import ConnectorError
from watersmeet.expressions.event_time import TimeUnit, span_text
from watersmeet.kernels.api import NEVER
from watersmeet.state.bytes_at_once import bytes_at_once

#: Event times further from the epoch than this are out of range: adding a window could overflow.
GREATEST_TIME = 2**62
#: The column with the text of rows that may go to the side output.
RAW_TEXT = "$raw"
#: The column with the time of arrival, in microseconds since 1970.
ARRIVAL = "$arrival"
_KEEP, _PART, _BAD, _STORED = "$keep", "$part", "$bad", "$frontier"


@dataclass(slots=True)
class _Task:
    """What one task has found so far."""

    report: PackReport = field(default_factory=PackReport)
    frontiers: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # by part, with the last tie there
    sample: KeySample = field(default_factory=KeySample)


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs the rows of one task, table by table; ``finish`` ends the task.

    ``here`` is the bucket whose task does, if all rows belong to it; then it alone learns of frontiers.

    ``pack`` raises ``ConnectorError`` at the first malformed row if ``spec.fails_on_bad``.
    """

    spec: PackSpec
    hot_keys: Entry = NO_ENTRY
    here: int | None = None
    _task: _Task = field(default_factory=_Task)

    def pack(self, rows: pa.Table) -> Iterator[Frame]:
        """Yield frames of the rows."""
        return _pack_rows(rows, self.spec, self.hot_keys.keys, self._task)

    def observe(self, part: str, frontier: int) -> None:
        """Note a frontier that the sender of the rows reports, beside them."""
        _raise_to(self._task.frontiers, part, frontier)

    def finish(self) -> Iterator[Frame]:
        """Yield marks: the task's frontiers to every bucket, its report to the first; nothing if there were no rows.

        Every bucket gets a mark, even if the task has no frontier: a counter is the sum over all buckets that took the
        step.
        """
        task, spec = self._task, self.spec
        if not task.report.counters["in"] and not task.frontiers:
            return
        task.report.hot_keys = self.hot_keys.batch
        task.report.rows = task.sample.rows
        task.report.frequent = task.sample.frequent(len(spec.buckets))
        if self.here is not None:
            task.report.newest = NEVER  # that is one bucket's to know
        for part, (frontier, tie) in (task.frontiers or {"": (NEVER, b"")}).items():
            for bucket in spec.buckets if self.here is None else (self.here,):
                yield mark_frame(bucket, spec.input, part, frontier, tie)
        first = spec.buckets[0] if self.here is None else self.here
        yield mark_frame(first, spec.input, "", NEVER, task.report.to_json())


def pack(batches: Iterable[pa.RecordBatch], spec: PackSpec, hot_keys: Entry = NO_ENTRY) -> Iterator[Frame]:
    """Yield the frames of a whole task; raises as ``Packer.pack`` does."""
    packer = Packer(spec, hot_keys)
    for rows in _gather(batches):
        yield from packer.pack(rows)
    yield from packer.finish()


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Collect batches into larger tables: a compute call costs about the same for few rows as for many.

    A batch that is itself too large is divided.
    """
    gathered: list[pa.RecordBatch] = []
    nbytes = rows = 0
    for batch in chain.from_iterable(map(_divided, batches)):
        gathered.append(batch)
        nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
        if nbytes >= bytes_at_once(nbytes, rows):
            yield pa.Table.from_batches(gathered)
            gathered, nbytes, rows = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _divided(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of equally many rows, of at most ``bytes_at_once`` on average; none of no rows."""
    step = -(-batch.num_rows // max(1, -(-batch.nbytes // bytes_at_once(batch.nbytes, batch.num_rows))))
    for start in range(0, batch.num_rows, step or 1):
        yield batch.slice(start, step)


def _pack_rows(rows: pa.Table, spec: PackSpec, hot_keys: HotKeys, task: _Task) -> Iterator[Frame]:
    counters = task.report.counters
    stores_frontier = _STORED in rows.column_names
    if stores_frontier:
        rows = _take_markers(rows, task.frontiers)
    counters["in"] += rows.num_rows
    bad = _is_bad(rows, spec)
    if pc.any(bad).as_py():
        side = _quarantined(rows.filter(bad), spec)
        rows = rows.filter(pc.invert(bad))
        counters["quarantined"] += side.num_rows
        if spec.fails_on_bad:
            raise _bad_row(side)
        yield from side_frames(side, bucket=spec.buckets[0])
    if spec.ties:
        rows = with_ties(rows, spec.ties)
    if rows.num_rows:
        task.report.newest = max(task.report.newest, pc.max(rows[TIME]).as_py())
    if not stores_frontier:
        _observe_frontiers(rows, spec, task)
    if _KEEP in rows.column_names:
        kept = rows.filter(pc.fill_null(rows[_KEEP], False))
        counters["filtered"] += rows.num_rows - kept.num_rows
        rows = kept
    if spec.sequence is not None:
        rows = _number_within_place(rows, spec.sequence, counters["in"])
    yield from _route(rows, spec, hot_keys, task)


def _route(rows: pa.Table, spec: PackSpec, hot_keys: HotKeys, task: _Task) -> Iterator[Frame]:
    """Yield the rows as frames for their buckets, and copies of rows of hot keys."""
    if not rows.num_rows:
        return
    if spec.gathering is not None:
        rows = gathered(rows, spec.gathering, spec.hashes, spec.operator)
    schema = _with_tie(spec.schema, spec)
    if spec.keeps_late:
        schema = schema.append(pa.field(RAW_TEXT, pa.string()))
    hashes = key_hashes(rows, spec.hashes)
    rows = rows.select(schema.names).cast(schema)
    indexes = home_indexes(hashes, len(spec.buckets))
    if spec.spreads:
        task.sample.add(hashes)
        yield from _copies(rows, hashes, indexes, spec, hot_keys)
        assign_spread_rows(indexes, hashes, rows[TIME].to_numpy(), hot_keys, spec.input, len(spec.buckets))
    for index, of_bucket in split_by_bucket(rows, indexes, len(spec.buckets)):
        yield from row_frames(of_bucket, bucket=spec.buckets[index], input=spec.input)


def _copies(
    rows: pa.Table, hashes: np.ndarray, homes: np.ndarray, spec: PackSpec, hot_keys: HotKeys
) -> Iterator[Frame]:
    """Yield rows of hot keys for the buckets that are not their home."""
    chosen = rows_to_copy(hashes, hot_keys, spec.input)
    if chosen is None:
        return
    rows, homes = rows.select(_with_tie(spec.schema, spec).names).filter(pa.array(chosen)), homes[chosen]
    for index, bucket in enumerate(spec.buckets):
        yield from row_frames(
            rows.filter(pa.array(homes != index)), bucket=bucket, input=spec.input, kind=FrameKind.COPIES
        )


def _with_tie(schema: pa.Schema, spec: PackSpec) -> pa.Schema:
    return schema.append(pa.field(TIE, pa.binary())) if spec.ties else schema


def _number_within_place(rows: pa.Table, sequence: str, seen: int) -> pa.Table:
    """Append each row's number in the task to its place: rows may share a place (lines of one block of a file)."""
    first = seen - rows.num_rows
    numbers = np.arange(first, first + rows.num_rows, dtype=">i8").tobytes()
    suffix = pa.Array.from_buffers(pa.binary(8), rows.num_rows, [None, pa.py_buffer(numbers)]).cast(pa.binary())
    numbered = pc.binary_join_element_wise(rows[sequence], suffix, pa.scalar(b"", pa.binary()))
    return rows.set_column(rows.column_names.index(sequence), sequence, numbered)


# -- frontiers ---------------------------------------------------------------------------------------------------------


def _observe_frontiers(rows: pa.Table, spec: PackSpec, task: _Task) -> None:
    """Raise each part's frontier to its newest event time minus delay and grace period."""
    if rows.num_rows == 0:
        return
    if _PART not in rows.column_names:
        newest = task.report.newest
        _raise_to(task.frontiers, "", newest - spec.delay, last_tie(rows, newest))
        return
    parts = rows[_PART].combine_chunks().dictionary_encode()
    newest_of = np.full(len(parts.dictionary), NEVER)
    np.maximum.at(newest_of, parts.indices.to_numpy(), rows[TIME].to_numpy())
    for number, (part, newest) in enumerate(zip(parts.dictionary.to_pylist(), newest_of.tolist(), strict=True)):
        tie = last_tie(rows.filter(pc.equal(parts.indices, number)), newest) if spec.ties else b""
        _raise_to(task.frontiers, part, newest - spec.delay, tie)


def _take_markers(rows: pa.Table, frontiers: dict[str, tuple[int, bytes]]) -> pa.Table:
    """Read and drop the rows in which a stream's producer stored its frontier."""
    stored = rows[_STORED]
    if stored.null_count < len(stored):
        markers = rows.filter(stored.is_valid())
        parts = markers[_PART].to_pylist() if _PART in rows.column_names else [""] * markers.num_rows
        for part, frontier in zip(parts, markers[_STORED].to_pylist(), strict=True):
            _raise_to(frontiers, part, frontier)
        rows = rows.filter(stored.is_null())
    return rows


def _raise_to(frontiers: dict[str, tuple[int, bytes]], part: str, frontier: int, tie: bytes = b"") -> None:
    frontiers[part] = max(frontiers.get(part, (NEVER, b"")), (frontier, tie))


# -- bad rows ----------------------------------------------------------------------------------------------------------


def has_no_time(times: pa.ChunkedArray, arrivals: pa.ChunkedArray | None, max_future: int | None) -> pa.ChunkedArray:
    """Return a mask of the rows whose event time is NULL, out of range, or too long after their arrival."""
    bad = pc.fill_null(_out_of_range(times), True)
    return bad if max_future is None else pc.or_(bad, _in_far_future(times, arrivals, max_future))


def _is_bad(rows: pa.Table, spec: PackSpec) -> pa.ChunkedArray:
    """Return a mask of the rows that are malformed, or have no event time that can be used."""
    arrivals = rows[ARRIVAL] if spec.max_future is not None else None
    bad = has_no_time(rows[TIME], arrivals, spec.max_future)
    return pc.or_(bad, rows[_BAD].is_valid()) if _BAD in rows.column_names else bad


def _out_of_range(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.or_(pc.greater(times, GREATEST_TIME), pc.less(times, -GREATEST_TIME))


def _in_far_future(times: pa.ChunkedArray, arrivals: pa.ChunkedArray, max_future: int) -> pa.ChunkedArray:
    """Return a mask of the rows that came too long before their time; a record may lack a time of arrival."""
    arrived = pc.if_else(pc.greater_equal(arrivals, 0), arrivals, pa.scalar(None, pa.int64()))
    return pc.fill_null(pc.greater(times, pc.add(arrived, max_future)), False)


def _quarantined(rows: pa.Table, spec: PackSpec) -> pa.Table:
    """Return bad rows with their reason and raw text (``SIDE_SCHEMA``)."""
    time = "the event time" if spec.dated_by is None else f"{spec.dated_by}, which dates the rows in this query,"
    of_time = pc.if_else(rows[TIME].is_null(), f"{time} is NULL", f"{time} is out of range")
    if spec.max_future is not None:  # a time that is neither NULL nor out of range
        usable = pc.invert(pc.fill_null(_out_of_range(rows[TIME]), True))
        span = span_text(spec.max_future, TimeUnit.TIMESTAMP)
        of_time = pc.if_else(usable, f"{time} is more than {span} after the row arrived (max_future)", of_time)
    reason = pc.coalesce(rows[_BAD], of_time) if _BAD in rows.column_names else of_time
    return side_rows("quarantined", spec.source, reason, rows[RAW_TEXT])


def _bad_row(side: pa.Table) -> ConnectorError:
    first = side.slice(0, 1).to_pylist()[0]
    return ConnectorError(
        f"{first['source']} brought a row that cannot be read: {first['reason']}",
        detail=first["raw"],
        hint="fix the source, or quarantine bad rows with SETTINGS bad_rows = 'quarantine'",
    )
