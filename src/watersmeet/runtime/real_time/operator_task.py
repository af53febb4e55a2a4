"""The task that runs buckets of operators in real time: small steps over what has arrived, one commit per epoch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.frames import (
    FRAME_SCHEMA,
    Frame,
    FrameKind,
    bundled,
    decode_table,
    from_record_batch,
    to_record_batch,
    unbundled,
    with_fillers,
)
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.settle import settled
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.unpack import write_side_rows
from watersmeet.runtime.memory_setting import MemorySetting
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.worker_tasks import working_sets
from watersmeet.state.epoch_store import EpochStore

#: The counters that a row of the last operator reports instead of a result, and the epoch of a result.
COUNTER, EPOCH = "_wm_counter", "_wm_epoch"
_COUNTER_TYPE = pa.struct([("sender", pa.string()), ("counters", pa.binary())])

#: Bundles that wait for a step.  If there are more, their senders wait, and in the end sources are read more slowly.
_MOST_WAITING = 64
#: How long frontiers that come without rows wait for rows, to take one step with them.
_WAIT_SECONDS = 0.02
#: The least time between two steps.  A step of one row costs nearly as much as one of a hundred: without a pause, steps
#: of few rows would use all of a core, and every row would wait for one.
_PAUSE_SECONDS = 0.015
#: Steps that take longer than this are of many rows, or the machine is busy.  Then a pause is twice as long as the step
#: before it, up to a limit: larger steps cost less for each row.
_LONG_STEP_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.1


#: An operator's number in the query, and a bucket.
_Place: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LiveOperatorTask:
    """Runs the buckets of a stage's operators whose frames come to this task.

    ``operators`` are those of the stage, by their number in the query.  ``sends_to`` has the number of the operator
    that takes an operator's results; the last one of the query has none, and yields rows of ``result_schema``.  All
    others yield bundles.  For ``run_id`` see ``OperatorTask``.
    """

    operators: Mapping[int, OperatorSpec]
    sends_to: Mapping[int, int]
    run_id: str
    epochs: Epochs
    memory: MemorySetting
    side_folder: str | None

    @property
    def schema(self) -> pa.Schema:
        """The columns that the task yields."""
        last = [spec for number, spec in self.operators.items() if number not in self.sends_to]
        return result_schema(last[0]) if last else FRAME_SCHEMA

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the operators send on, as the frames come."""
        with live_task():
            buckets: dict[_Place, _Bucket] = {}
            arrivals, due = Arrivals(batches, _MOST_WAITING), 0.0
            while arrived := _frames(arrivals.take()):
                if (early := due - time.monotonic()) > 0:
                    time.sleep(early)
                    arrived += _frames(arrivals.take(0))
                here, passing = self._sorted(arrived)
                if not any(frame.kind.has_rows for frames in here.values() for frame in frames):
                    more, passing_too = self._sorted(_frames(arrivals.take(_WAIT_SECONDS)))
                    passing += passing_too
                    for place, frames in more.items():
                        here.setdefault(place, []).extend(frames)
                began = time.monotonic()
                if passing:
                    yield to_record_batch(with_fillers(passing))
                for place, frames in here.items():
                    if place not in buckets:
                        buckets[place] = _Bucket(self, *place)
                    yield from buckets[place].step(frames)
                ended = time.monotonic()
                due = ended + _pause_after(ended - began)
            for bucket in buckets.values():
                yield from bucket.close()
            working_sets(self.memory.here()).close_idle()

    def _sorted(self, arrived: Iterable[Frame]) -> tuple[dict[_Place, list[Frame]], list[Frame]]:
        """The frames for each operator's bucket here, and the bundles for operators of later stages."""
        here: dict[_Place, list[Frame]] = {}
        passing = []
        for frame in arrived:
            if frame.kind is FrameKind.FILLER:
                continue
            if frame.kind is not FrameKind.BUNDLE:  # a control event, for every operator
                for number, spec in self.operators.items():
                    if frame.bucket in spec.buckets:
                        here.setdefault((number, frame.bucket), []).append(frame)
            elif frame.input in self.operators:
                here.setdefault((frame.input, frame.bucket), []).extend(unbundled(frame))
            else:
                passing.append(frame)
        return here, passing


class _Bucket:
    """A bucket of an operator for the time of an epoch."""

    def __init__(self, task: LiveOperatorTask, operator: int, number: int) -> None:
        self._task, self._operator, self._number = task, operator, number
        self._spec = spec = task.operators[operator]
        self._store: EpochStore = task.epochs.open("operators", spec.name, str(number))
        memory = task.memory.here()
        working_set = working_sets(memory).get(task.run_id, spec.name, str(number))
        self._bucket = OpenBucket(spec, number, self._store, working_set, max_step_bytes=memory.step_bytes)
        self._side: list[pa.Table] = []

    def step(self, frames: Sequence[Frame]) -> Iterator[pa.RecordBatch]:
        outbox = self._bucket.step(frames)
        return self._sent(outbox.followed_by(self._bucket.advanced()))

    def close(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        reported = self._bucket.close()
        task.epochs.write(self._store)
        if self._side and task.side_folder is not None:
            path = f"{task.side_folder}/batch-{task.epochs.current}-{self._number}-0.jsonl"
            write_side_rows(pa.concat_tables(self._side), path)
        return self._sent(Outbox(self._spec, self._number, None, reported))

    def _sent(self, outbox: Outbox) -> Iterator[pa.RecordBatch]:
        to = self._task.sends_to.get(self._operator)
        if to is not None:
            if bundles := list(bundled(outbox, to)):
                yield to_record_batch(with_fillers(bundles))
            return
        yield from _results(outbox, self._task.epochs.current)
        self._side += (decode_table(frame.payload) for frame in outbox.others if frame.kind is FrameKind.SIDE)


def result_schema(spec: OperatorSpec) -> pa.Schema:
    """What the last operator yields: results, and counters in rows of their own."""
    return pa.schema([pa.field(COUNTER, _COUNTER_TYPE), pa.field(EPOCH, pa.int64()), *spec.output])


def _results(outbox: Outbox, epoch: int) -> Iterator[pa.RecordBatch]:
    schema = result_schema(outbox.spec)
    if outbox.changes is not None and outbox.changes.num_rows:
        count = outbox.changes.num_rows
        head = [pa.nulls(count, _COUNTER_TYPE), pa.repeat(pa.scalar(epoch, pa.int64()), count)]
        rows = settled(outbox.changes.cast(outbox.spec.output))
        yield from pa.table([*head, *rows.columns], schema=schema).to_batches()
        # a sink in Python gets a row when the next one is there, as operators do: this one has no epoch
        yield pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    counters = [frame for frame in outbox.others if frame.kind is FrameKind.COUNTER]
    if counters:
        values = pa.array([{"sender": each.part, "counters": bytes(each.payload)} for each in counters], _COUNTER_TYPE)
        nothing = [pa.nulls(len(counters), field.type) for field in list(schema)[1:]]
        yield pa.RecordBatch.from_arrays([values, *nothing], schema=schema)


def _pause_after(seconds: float) -> float:
    return _PAUSE_SECONDS if seconds < _LONG_STEP_SECONDS else min(2 * seconds, _LONGEST_PAUSE_SECONDS)


def _frames(batches: Sequence[pa.RecordBatch]) -> list[Frame]:
    return [frame for batch in batches for frame in from_record_batch(batch)]
