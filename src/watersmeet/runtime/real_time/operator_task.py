"""The task that runs buckets of an operator in real time: small steps over what has arrived, one commit per epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
)
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.settle import settled
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.unpack import write_side_rows
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.worker_tasks import working_sets
from watersmeet.state.epoch_store import EpochStore

#: The counter that a row of the last operator reports instead of a result, and the epoch of a result.
COUNTER, EPOCH = "_wm_counter", "_wm_epoch"
_COUNTER_TYPE = pa.struct([("name", pa.string()), ("value", pa.int64())])

#: Bundles that wait for a step.  If there are more, their senders wait, and in the end sources are read more slowly.
_MOST_WAITING = 64
#: How long frontiers that come without rows wait for rows, to take one step with them.
_WAIT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class LiveOperatorTask:
    """Runs the buckets of one operator whose frames come to this task.

    The last operator yields rows of ``result_schema``; the others yield bundles.  For ``run`` see ``OperatorTask``.
    """

    spec: OperatorSpec
    run_id: str
    epochs: Epochs
    cache_bytes: int
    memory_limit: str | None
    side_folder: str | None

    @property
    def schema(self) -> pa.Schema:
        """The columns that the task yields."""
        return FRAME_SCHEMA if self.spec.downstream is not None else result_schema(self.spec)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the operator sends on, as the frames come."""
        with live_task():
            buckets: dict[int, _Bucket] = {}
            arrivals = Arrivals(batches, _MOST_WAITING)
            while arrived := _frames(arrivals.take()):
                if not any(frame.kind.has_rows for frame in arrived):
                    arrived += _frames(arrivals.take(_WAIT_SECONDS))
                for number, frames in _by_bucket(arrived).items():
                    if number not in buckets:
                        buckets[number] = _Bucket(self, number)
                    yield from buckets[number].step(frames)
            for bucket in buckets.values():
                yield from bucket.close()
            working_sets(self.cache_bytes, self.memory_limit).trim()


class _Bucket:
    """A bucket for the time of an epoch."""

    def __init__(self, task: LiveOperatorTask, number: int) -> None:
        self._task, self._number = task, number
        self._store: EpochStore = task.epochs.open("operators", task.spec.name, str(number))
        working_set = working_sets(task.cache_bytes, task.memory_limit).get(task.run_id, task.spec.name, str(number))
        self._bucket = OpenBucket(task.spec, number, self._store, working_set)
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
        return self._sent(Outbox(task.spec, self._number, None, reported))

    def _sent(self, outbox: Outbox) -> Iterator[pa.RecordBatch]:
        if self._task.spec.downstream is not None:
            if bundles := list(bundled(outbox)):
                yield to_record_batch(bundles)
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
    counters = [frame for frame in outbox.others if frame.kind is FrameKind.COUNTER]
    if counters:
        values = pa.array([{"name": each.part, "value": each.frontier} for each in counters], _COUNTER_TYPE)
        nothing = [pa.nulls(len(counters), field.type) for field in list(schema)[1:]]
        yield pa.RecordBatch.from_arrays([values, *nothing], schema=schema)


def _frames(batches: Sequence[pa.RecordBatch]) -> list[Frame]:
    return [frame for batch in batches for bundle in from_record_batch(batch) for frame in unbundled(bundle)]


def _by_bucket(frames: Sequence[Frame]) -> dict[int, list[Frame]]:
    found: dict[int, list[Frame]] = {}
    for frame in frames:
        found.setdefault(frame.bucket, []).append(frame)
    return found
