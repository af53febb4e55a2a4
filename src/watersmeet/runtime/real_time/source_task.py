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
from watersmeet.kernels.api import NEVER
from watersmeet.records.records import Records
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.live_task import live_task, task_number
from watersmeet.runtime.real_time.records_for_spark import DecodedBySpark
from watersmeet.runtime.real_time.tails import LiveTopic, Tail
from watersmeet.runtime.worker_records import RecordRows

#: The value that holds a task's positions, in the store of its epochs.
POSITIONS = "positions"
#: At most so many records are with Spark at once; their poll waits for them.
_LEFT_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class FollowTask:
    """Follows a source; yields bundles of frames.  Spark decodes what is left to it (records_for_spark.py).

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

    def run(self, decoded: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Everything that comes until the epoch ends; ``decoded`` is what Spark makes of the records left to it."""
        with live_task(), DecodedBySpark(decoded) as by_spark:
            task = task_number() - self.first_task
            assert 0 <= task < self.tasks
            store = self.epochs.open("inputs", str(self.number), str(task))
            stored = store.get(POSITIONS)
            tail = self.topic.tail(self.first if stored is None else _decoded(stored), task, self.tasks)
            silence = _Silence(tail, self.idle_seconds)
            try:
                # every bucket hears of every epoch, and writes its state at the end of it
                yield self._bundled(self._to_all_buckets(FrameKind.MARK, b""))
                while not by_spark.epoch_has_ended:
                    if polled := tail.poll():
                        yield self._bundled(self._frames_of(polled, by_spark))
                    if idle := silence.parts():
                        event = Event(EventKind.IDLE, (self.rows.packing.spec.source,), idle)
                        yield self._bundled(self._to_all_buckets(FrameKind.CONTROL, event.to_json()))
                by_spark.end()
                store.put(POSITIONS, json.dumps(tail.positions).encode())
                self.epochs.write(store)
            finally:
                tail.close()

    def _frames_of(self, polled: Sequence[Records], by_spark: DecodedBySpark) -> Iterator[Frame]:
        """The frames of a poll, frontiers last: before the records that Spark decodes, they would make those late."""
        packer = self.rows.packing.packer()
        for records in polled:
            rows, left = self.rows.split(records)
            if rows is not None:
                yield from packer.pack(rows)
            for start in range(0, len(left), _LEFT_AT_ONCE):
                rows = by_spark.rows(records.raw(left[start : start + _LEFT_AT_ONCE]))
                if rows is not None:
                    yield from packer.pack(rows)
        yield from packer.finish()

    def _bundled(self, frames: Iterable[Frame]) -> pa.RecordBatch:
        bundles = list(with_fillers(bundled(frames, self.operator)))
        return to_record_batch(bundles or [filler(self.rows.packing.spec.buckets[0])])

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


def _decoded(stored: bytes) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(stored).items()}
