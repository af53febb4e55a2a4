"""The tasks that read a source in real time: they follow it until the epoch ends, and send its rows as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.frames import (
    Frame,
    FrameKind,
    bundled,
    filler,
    to_record_batch,
    with_fillers,
)
from watersmeet.engine.pack import Packer
from watersmeet.kernels.api import NEVER
from watersmeet.records.records import Records
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.live_task import live_task, task_number
from watersmeet.runtime.real_time.rows_and_frames import in_turn
from watersmeet.runtime.real_time.tails import LiveTopic, Tail
from watersmeet.runtime.worker_records import RecordRows
from watersmeet.runtime.worker_tasks import PackTask

#: The value that holds a task's positions, in the store of its epochs.
POSITIONS = "positions"


@dataclass(frozen=True, slots=True)
class FollowTask:
    """Follows a source; yields frames in ``_wm_packed`` beside raw records that are left to Spark.

    ``number`` is the input's number in the query, ``operator`` that of its operator.  ``tasks`` tasks share the
    partitions: those of Spark's stage from ``first_task`` on.  ``first`` is where a new query begins.  A partition that
    is silent for ``idle_seconds`` (None: never) no longer holds the frontier back.
    """

    topic: LiveTopic
    rows: RecordRows
    epochs: Epochs
    number: int
    operator: int
    tasks: int
    first_task: int
    first: Mapping[int, int]
    idle_seconds: float | None

    def run(self, ticks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Everything that comes until the ``ticks`` end."""
        with live_task():
            until, task = Arrivals(ticks), task_number() - self.first_task
            assert 0 <= task < self.tasks
            store = self.epochs.open("inputs", str(self.number), str(task))
            stored = store.get(POSITIONS)
            tail = self.topic.tail(self.first if stored is None else _decoded(stored), task, self.tasks)
            silence = _Silence(tail, self.idle_seconds)
            try:
                # every bucket hears of every epoch, and writes its state at the end of it
                yield self._packed(self._to_all_buckets(FrameKind.MARK, b""))
                while not until.has_ended:
                    if polled := tail.poll():
                        yield from self._sent(polled)
                    if idle := silence.parts():
                        event = Event(EventKind.IDLE, (self.rows.packing.spec.source,), idle)
                        yield self._packed(self._to_all_buckets(FrameKind.CONTROL, event.to_json()))
                store.put(POSITIONS, json.dumps(tail.positions).encode())
                self.epochs.write(store)
            finally:
                tail.close()

    def _sent(self, polled: Sequence[Records]) -> Iterator[pa.RecordBatch]:
        """Rows, then records left, then frontiers: a frontier before them would make the rows of these records late."""
        packer = self.rows.packing.packer()
        frames: list[Frame] = []
        unpacked = []
        for records in polled:
            rows, left = self.rows.split(records)
            if rows is not None:
                frames += packer.pack(rows)
            if len(left):
                unpacked.append(self.rows.unpacked(records.raw(left)))
        if unpacked:
            if frames:
                yield self._packed(frames)
            yield from unpacked
            frames = []
        yield self._packed([*frames, *packer.finish()])

    def _packed(self, frames: Iterable[Frame]) -> pa.RecordBatch:
        bundles = list(with_fillers(bundled(frames, self.operator)))
        return self.rows.packed(to_record_batch(bundles or [filler(self.rows.packing.spec.buckets[0])]))

    def _to_all_buckets(self, kind: FrameKind, payload: bytes) -> Iterator[Frame]:
        spec = self.rows.packing.spec
        return (Frame(bucket, spec.input, "", kind, NEVER, payload) for bucket in spec.buckets)


@dataclass(slots=True)
class _Silence:
    """Which partitions of a tail have been silent for too long; each is named once, until it brings records again.

    A worker that reads a clock: so which rows are padded for an idle input may differ when an epoch runs again.
    """

    tail: Tail
    seconds: float | None
    _seen: dict[int, tuple[int | None, float]] = field(default_factory=dict)  # position, and since when
    _named: set[int] = field(default_factory=set)

    def parts(self) -> tuple[str, ...]:
        """The names of partitions that have just become idle."""
        if self.seconds is None:
            return ()
        now, found = time.monotonic(), []
        for number, part in self.tail.parts.items():
            position = self.tail.positions.get(number)
            before, since = self._seen.setdefault(number, (position, now))
            if position != before:
                self._seen[number] = (position, now)
                self._named.discard(number)
            elif now - since > self.seconds and number not in self._named:
                self._named.add(number)
                found.append(part)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class LiveRestTask:
    """Passes on frames, and packs the rows beside them, which Spark has decoded."""

    packing: PackTask
    operator: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The frames of all rows, as they come."""
        with live_task():
            arrivals = Arrivals(batches)
            while arrived := arrivals.take():
                for part in in_turn(arrived):
                    frames = self._packed(part) if isinstance(part, pa.Table) else part
                    passed = (frame for frame in frames if frame.kind is not FrameKind.FILLER)
                    yield to_record_batch(with_fillers(passed))

    def _packed(self, rows: pa.Table) -> Iterator[Frame]:
        packer: Packer = self.packing.packer()
        frames = list(packer.pack(rows))
        return bundled([*frames, *packer.finish()], self.operator)


def _decoded(stored: bytes) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(stored).items()}
