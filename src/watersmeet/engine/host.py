"""One bucket's step: frames in, kernel, durable state, frames out.

This is where exactness is kept, and it knows nothing of Spark: the same code runs in a Spark task (processor.py) and
in the test harness.  A step reads the manifest, brings the working set to it, moves the frontiers, sets late rows
aside, lets the kernel work, logs what it says, and writes the manifest.  The store commits all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.engine.events import Event, EventKind
from watersmeet.engine.frames import (
    Frame,
    FrameKind,
    decode_table,
    mark_frame,
    row_frames,
    side_frame,
    side_rows,
)
from watersmeet.engine.hot_keys import HotKeyLog, Seen, next_keys
from watersmeet.engine.pack import RAW_TEXT, Told
from watersmeet.engine.routing import home_indexes, key_hashes, split_by_bucket
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError, LimitError
from watersmeet.kernels.api import FOREVER, GONE, NEVER, StepFrontiers, StepResult
from watersmeet.state.compaction import plan_merges
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.manifest import Manifest, PartFrontier, read_manifest, write_manifest
from watersmeet.state.segments import Segment, drop_segment, read_segment, split_by_time, write_segment
from watersmeet.state.store import Store
from watersmeet.state.working_set import WorkingSet


@dataclass(slots=True)
class Inbox:
    """What arrived for one bucket in one batch, sorted out."""

    rows: dict[int, pa.Table]
    copies: dict[int, pa.Table]  # of rows that other buckets count
    marks: list[Frame]
    told: list[tuple[int, Told]]  # what packing tasks tell of an input's rows
    controls: list[Frame]
    passing: list[Frame]  # side rows and counters of earlier operators


@dataclass(frozen=True, slots=True)
class Sent:
    """What a step sends on.  Results are encoded as they are asked for, so that few of them are in memory twice."""

    spec: OperatorSpec
    bucket: int
    changes: pa.Table | None
    others: Sequence[Frame]

    def __iter__(self) -> Iterator[Frame]:
        yield from self.others
        yield from _results(self.spec, self.bucket, self.changes)


def process(
    spec: OperatorSpec,
    bucket: int,
    frames: Iterable[Frame],
    store: Store,
    working_set: WorkingSet,
    local_copies: LocalCopies | None = None,
    hot_keys: HotKeyLog | None = None,
) -> Sent:
    """Take one step of one bucket; what it sends on comes back.

    ``local_copies`` are those of the bucket's segments that workers of this machine have left for each other;
    ``hot_keys`` is the log by which rows of this batch were packed (None: none has been spread).

    Raises ``CheckpointError`` where the stored state belongs to another plan or format, ``LimitError`` where the
    state would grow over its limit (nothing of the step is kept then).
    """
    inbox = _sort_out(spec, frames)
    manifest = read_manifest(
        store,
        spec.fingerprint,
        {number: input.parts for number, input in enumerate(spec.inputs)},
        first_rid=spec.buckets.index(bucket) << 48,
    )

    def load(segment: Segment) -> pa.Table:
        copy = None if local_copies is None else local_copies.get(segment.id)
        return read_segment(store, segment) if copy is None else copy

    loaded = working_set.sync(manifest.segments, load, most_hot=spec.most_hot_rows)
    before = manifest.frontier
    late_before = _late_before(spec, manifest)
    _move_frontiers(spec, manifest, inbox)
    own = tuple(manifest.own[number] for number in range(len(spec.inputs)))
    frontiers = StepFrontiers(before, manifest.frontier, own)

    sent: list[Frame] = []
    inputs = {}
    for number, rows in inbox.rows.items():
        on_time, late = _set_late_aside(rows, late_before[number])
        label = spec.inputs[number].source
        if label is not None:
            manifest.count(f"{spec.name}.late.{label}", late.num_rows)
            manifest.count(f"{spec.name}.used.{label}", on_time.num_rows)
            if late.num_rows and RAW_TEXT in late.column_names:
                aside = _late_rows(late, label, late_before[number], spec.inputs[number].scale)
                sent.append(side_frame(aside, bucket=_onward(spec, bucket)))
        copies_on_time, _ = _set_late_aside(inbox.copies[number], late_before[number])
        schema = spec.inputs[number].schema
        inputs[number] = pa.concat_tables(
            [each.select(schema.names).cast(schema) for each in (on_time, copies_on_time)]
        )
    if bucket == spec.buckets[0]:
        _decide_hot_keys(spec, manifest, inbox, hot_keys)

    is_first = manifest.step == 0  # an aggregate of all rows has a result before there are any
    if is_first or any(rows.num_rows for rows in inputs.values()) or frontiers.before != frontiers.after:
        try:
            result = spec.kernel.step(working_set, inputs, frontiers, manifest.next_rid)
        except duckdb.OutOfMemoryException as error:
            raise LimitError(
                f"a batch of {spec.name} needs more memory than a worker has: {str(error).splitlines()[0]}",
                hint="raise memory_limit, or make batches smaller, and resume; nothing was lost",
            ) from None
        finally:
            working_set.let_go()
    else:
        result = StepResult()
    for name, by in result.counters.items():
        manifest.count(f"{spec.name}.{name}", by)
    manifest.next_rid += sum(table.num_rows for table in inputs.values())
    manifest.step += 1
    _log(spec, manifest, result, store, working_set, local_copies)
    working_set.cool(manifest.segments, spec.most_hot_rows)
    _check_limit(spec, manifest)
    write_manifest(store, manifest)

    sent += _marks(spec, bucket, manifest)
    sent += _counters(spec, bucket, manifest, working_set, loaded)
    passing = [replace(frame, bucket=_onward(spec, bucket)) for frame in inbox.passing]
    return Sent(spec, bucket, result.changes, [*passing, *sent])


def _onward(spec: OperatorSpec, bucket: int) -> int:
    """The bucket that takes what is for nobody's state: the first one downstream, or this one at the end."""
    return spec.downstream.buckets[0] if spec.downstream else bucket


def _sort_out(spec: OperatorSpec, frames: Iterable[Frame]) -> Inbox:
    rows: dict[int, list[pa.Table]] = {number: [] for number in range(len(spec.inputs))}
    copies: dict[int, list[pa.Table]] = {number: [] for number in rows}
    inbox = Inbox({}, {}, [], [], [], [])
    for frame in frames:
        match frame.kind:
            case FrameKind.ROWS:
                rows[frame.input].append(decode_table(frame.payload))
            case FrameKind.COPIES:
                copies[frame.input].append(decode_table(frame.payload))
            case FrameKind.MARK:
                inbox.marks.append(frame)
                if frame.payload:
                    inbox.told.append((frame.input, Told.from_json(bytes(frame.payload))))
            case FrameKind.CONTROL:
                inbox.controls.append(frame)
            case FrameKind.SIDE | FrameKind.COUNTER:
                inbox.passing.append(frame)
    for number, input in enumerate(spec.inputs):
        for held, found in ((inbox.rows, rows[number]), (inbox.copies, copies[number])):
            held[number] = pa.concat_tables(found) if found else input.schema.empty_table()
    return inbox


def _late_before(spec: OperatorSpec, manifest: Manifest) -> list[int]:
    """For each input the frontier below which its rows are late."""
    if spec.accepts_late and not manifest.sealed:
        return [NEVER] * len(spec.inputs)
    return [
        manifest.frontier if input.holds_back else manifest.own.get(number, NEVER)
        for number, input in enumerate(spec.inputs)
    ]


def _move_frontiers(spec: OperatorSpec, manifest: Manifest, inbox: Inbox) -> None:
    """Take in marks and control events, then move the operator's own frontier."""
    for mark in inbox.marks:
        if mark.frontier != NEVER:
            manifest.hear(mark.input, mark.part, mark.frontier)
    for number, told in inbox.told:
        manifest.see(number, told.newest)
        for name, by in told.counters.items():
            manifest.count(f"{spec.name}.{name}.{spec.inputs[number].source}", by)
    for control in inbox.controls:
        _apply_control(spec, manifest, Event.from_json(bytes(control.payload)))
    lags = {number: input.lag for number, input in enumerate(spec.inputs)}
    manifest.advance(lags, [number for number, input in enumerate(spec.inputs) if not input.holds_back])


def _apply_control(spec: OperatorSpec, manifest: Manifest, event: Event) -> None:
    """End of input, idle inputs, or a frontier set by hand."""
    for number, input in enumerate(spec.inputs):
        if input.source is None or not (event.inputs is None or input.source in event.inputs):
            continue
        parts = manifest.parts.setdefault(number, {})
        for name in list(parts) or [""]:
            match event.kind:
                case EventKind.END:
                    manifest.hear(number, name, FOREVER)
                case EventKind.ADVANCE:
                    manifest.hear(number, name, event.frontier)
                case EventKind.IDLE if event.parts is None or name in event.parts:
                    known = parts.setdefault(name, PartFrontier())
                    # a part that has spoken since its silence was seen is not idle
                    known.idle = event.observed in (None, known.heard * len(spec.buckets))


def _decide_hot_keys(spec: OperatorSpec, manifest: Manifest, inbox: Inbox, log: HotKeyLog | None) -> None:
    """Which keys are hot in the batches to come; one bucket says so for all, and has heard what packing tasks saw."""
    if log is None or spec.spread is None:
        if manifest.hot_keys is not None:
            raise CheckpointError(
                f"{spec.name} has spread rows of hot keys over its buckets, and this run would not find them all",
                hint="resume the query where it ran before, with SETTINGS skew = 'spread'",
            )
        return
    before = log.read()
    for batch in (before.batch, *(told.hot_keys for _, told in inbox.told)):
        if batch != manifest.hot_keys:
            raise CheckpointError(
                f"the hot keys of {spec.name} are not those that it has noted: it knows of batch {manifest.hot_keys}, "
                f"and the newest file that all its tasks see is of batch {batch}",
                hint="bring the folder hot_keys of its checkpoint back, to where all workers see it, or start on a new "
                "checkpoint with SETTINGS skew = 'keep'",
            )
    seen = {number: Seen(0, {}) for number in range(len(spec.inputs))}
    for number, told in inbox.told:
        seen[number].add(told.rows, told.frequent)
    newest = [manifest.newest.get(number, NEVER) for number in range(len(spec.inputs))]
    closed = list(spec.kernel.live_relations(manifest.frontier).values())
    keys = next_keys(before.keys, seen, newest, closed, spec.spread, len(spec.buckets))
    after = log.settle(before, keys, (*newest, *closed))
    manifest.hot_keys = after.batch
    if after.batch is not None:
        manifest.counters[f"{spec.name}.hot_keys"] = len(after.keys)


def _set_late_aside(rows: pa.Table, frontier: int) -> tuple[pa.Table, pa.Table]:
    """Rows on time (t >= frontier, or no time on a padded row), and late ones."""
    if not rows.num_rows:
        return rows, rows
    late = pc.fill_null(pc.less(rows[TIME], pa.scalar(frontier, pa.int64())), False)
    if not pc.any(late).as_py():
        return rows, rows.slice(0, 0)
    return rows.filter(pc.invert(late)), rows.filter(late)


def _late_rows(rows: pa.Table, source: str, frontier: int, scale: int | None) -> pa.Table:
    reason = f"its event time is before {_time_text(frontier, scale)}"
    return side_rows("late", source, pa.array([reason] * rows.num_rows), rows[RAW_TEXT])


def _time_text(frontier: int, scale: int | None) -> str:
    """A frontier as the event time's column would have it."""
    if frontier == FOREVER:
        return "the end of the stream, which has been told"
    if scale is not None:
        return f"the frontier {Decimal(frontier) / scale:f}"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=frontier)
    except OverflowError:
        return f"the frontier, {frontier} microseconds from 1970"
    return f"the frontier {moment.isoformat(sep=' ')}"


def _log(
    spec: OperatorSpec,
    manifest: Manifest,
    result: StepResult,
    store: Store,
    working_set: WorkingSet,
    copies: LocalCopies | None,
) -> None:
    """Log new rows, drop segments whose rows are all past, merge small ones."""
    width = spec.kernel.partition_width

    def drop(segment_id: str) -> None:
        segment = next(each for each in manifest.segments if each.id == segment_id)
        manifest.segments.remove(segment)
        working_set.remove(segment_id)
        drop_segment(store, segment)
        if copies is not None:
            copies.remove(segment_id)

    def add(relation: str, rows: pa.Table) -> None:
        segment = write_segment(store, manifest.step, relation, rows)
        manifest.segments.append(segment)
        working_set.add(segment, rows)
        if copies is not None:
            copies.put(segment.id, rows)

    for segment in list(manifest.segments):
        if segment.high < result.forget.get(segment.relation, NEVER) or segment.relation in result.replace:
            drop(segment.id)
    for relation, rows in (*result.replace.items(), *result.store.items()):
        for piece in split_by_time(rows, width):
            add(relation, piece)
    for group in plan_merges(manifest.segments, width):
        merged = working_set.read(group)
        live = merged.filter(
            pc.greater_equal(merged[TIME], pa.scalar(result.forget.get(group[0].relation, NEVER), pa.int64()))
        )
        for segment in group:
            drop(segment.id)
        if live.num_rows:
            add(group[0].relation, live)


def _check_limit(spec: OperatorSpec, manifest: Manifest) -> None:
    if spec.max_state_bytes is None:
        return
    share = spec.max_state_bytes // len(spec.buckets)
    held = sum(segment.nbytes for segment in manifest.segments)
    if held > share:
        raise LimitError(
            f"the state of {spec.name} has reached its limit: {held:,} bytes in one of {len(spec.buckets)} buckets",
            detail=f"join_max_buffered_bytes = {spec.max_state_bytes:,} allows {share:,} bytes a bucket",
            hint="raise join_max_buffered_bytes and resume: nothing was lost; or begin anew with WITHIN",
        )


def _results(spec: OperatorSpec, bucket: int, changes: pa.Table | None) -> Iterator[Frame]:
    if changes is None or changes.num_rows == 0:
        return
    changes = changes.cast(spec.output)
    to = spec.downstream
    if to is None:
        yield from row_frames(changes, bucket=bucket, input=0)
        return
    if len(to.times) == 1:
        changes = changes.rename_columns([TIME if name == to.times[0] else name for name in changes.column_names])
    else:
        changes = changes.append_column(TIME, pc.coalesce(*(changes[name] for name in to.times)))
    indexes = home_indexes(key_hashes(changes, to.hashes), len(to.buckets))
    for index, rows in split_by_bucket(changes, indexes, len(to.buckets)):
        yield from row_frames(rows, bucket=to.buckets[index], input=to.input)


def _marks(spec: OperatorSpec, bucket: int, manifest: Manifest) -> list[Frame]:
    """The operator's frontier, from this bucket to every bucket downstream (or to the result)."""
    to = spec.downstream
    part = str(bucket)
    if to is None:
        return [mark_frame(bucket, 0, part, manifest.frontier)]
    return [mark_frame(each, to.input, part, manifest.frontier) for each in to.buckets]


def _counters(spec: OperatorSpec, bucket: int, manifest: Manifest, working_set: WorkingSet, loaded: int) -> list[Frame]:
    """Counters since the query began, and how large this bucket's state is, as frames for the metrics."""
    live = spec.kernel.live_relations(manifest.frontier)
    gauges = {
        f"{spec.name}.state_rows": sum(
            working_set.count(relation, low) - working_set.count(relation + GONE, low) for relation, low in live.items()
        ),
        f"{spec.name}.state_bytes": sum(segment.nbytes for segment in manifest.segments),
        f"{spec.name}.segments": len(manifest.segments),
        f"{spec.name}.frontier": manifest.frontier,
        f"{spec.name}.loaded_bytes": loaded,
    }
    for number, input in enumerate(spec.inputs):
        if input.source is not None:
            for part in input.parts:
                gauges[f"{spec.name}.heard.{input.source}.{part}"] = manifest.parts[number][part].heard
    return [
        Frame(_onward(spec, bucket), 0, name, FrameKind.COUNTER, value, b"")
        for name, value in {**manifest.counters, **gauges}.items()
    ]
