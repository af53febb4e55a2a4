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
    from_record_batch,
    to_record_batch,
    unbundled,
    with_fillers,
)
from watersmeet.engine.live_results import LiveOperator
from watersmeet.engine.mail import Mail
from watersmeet.engine.outbox import Outbox
from watersmeet.engine.settle import settled
from watersmeet.engine.specs import OperatorSpec
from watersmeet.engine.unpack import side_file_of, write_side_rows
from watersmeet.runtime.bucket_size_files import BucketSizeFiles
from watersmeet.runtime.memory_setting import MemorySetting
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.epochs import Epochs
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.worker_tasks import working_sets
from watersmeet.state.epoch_store import EpochStore

#: The counters that a row of the last operator reports instead of a result, and the epoch of a result.
COUNTER, EPOCH = "_wm_counter", "_wm_epoch"
_RESULT = "_wm_result_"
_COUNTER_TYPE = pa.struct([("sender", pa.string()), ("counters", pa.binary())])

#: Bundles that wait for a step.  If there are more, their senders wait, and in the end sources are read more slowly.
_MOST_WAITING = 64
#: How long frontiers that come without rows wait for rows, to take one step with them.
_WAIT_SECONDS = 0.02
#: The least time between two steps.  A step of one row costs nearly as much as one of a hundred: without a pause, steps
#: of few rows would use all of a core, and every row would wait for one.  Where steps take longer, because they are of
#: many rows or the machine is busy, a pause is twice as long as the step before it, up to a limit: larger steps cost
#: less for each row.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.015, 0.1


#: Frames by the number of their operator in the query, and by bucket.
_Inboxes: TypeAlias = dict[int, dict[int, list[Frame]]]


@dataclass(frozen=True, slots=True)
class LiveOperatorTask:
    """Runs the buckets of a stage's operators whose frames come to this task.

    ``operators`` are those of the stage, by their number in the query, in the order in which rows pass them.  The last
    one of the query yields rows of ``result_schema``, all others bundles.  For ``run_id`` and ``sizes`` see
    ``OperatorTask``.
    """

    operators: Mapping[int, LiveOperator]
    run_id: str
    epochs: Epochs
    memory: MemorySetting
    side_folder: str | None
    sizes: Mapping[str, BucketSizeFiles]

    @property
    def schema(self) -> pa.Schema:
        """The columns that the task yields."""
        last = [each.spec for each in self.operators.values() if each.is_last]
        return result_schema(last[0]) if last else FRAME_SCHEMA

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the operators send on, as the frames come."""
        with live_task():
            stage = _Stage(self)
            arrivals, due = Arrivals(batches, _MOST_WAITING), 0.0
            while received := arrivals.take():  # a batch without rows is not the end
                arrived = _frames(received)
                if (early := due - time.monotonic()) > 0:
                    time.sleep(early)
                    arrived += _frames(arrivals.take(0))
                here, passing = self._sorted(arrived)
                if not any(frame.kind.has_rows for frames in _inboxes(here) for frame in frames):
                    more, passing_too = self._sorted(_frames(arrivals.take(_WAIT_SECONDS)))
                    passing += passing_too
                    for number, inboxes in more.items():
                        for bucket, frames in inboxes.items():
                            here[number].setdefault(bucket, []).extend(frames)
                began = time.monotonic()
                if passing:
                    yield to_record_batch(with_fillers(passing, behind_shuffle=True))
                yield from stage.take(here)
                ended = time.monotonic()
                due = ended + _pause_after(ended - began)
            yield from stage.close()
            working_sets(self.memory.here()).tidy()

    def _sorted(self, arrived: Iterable[Frame]) -> tuple[_Inboxes, list[Frame]]:
        """The frames for each operator's bucket here, and the bundles for operators of later stages."""
        here: _Inboxes = {number: {} for number in self.operators}
        passing = []
        for frame in arrived:
            if frame.kind is FrameKind.FILLER:
                continue
            if frame.kind is not FrameKind.BUNDLE:  # a control event, for every operator
                for number, operator in self.operators.items():
                    if frame.bucket in operator.spec.buckets:
                        here[number].setdefault(frame.bucket, []).append(frame)
            elif frame.input in self.operators:
                here[frame.input].setdefault(frame.bucket, []).extend(unbundled(frame))
            else:
                passing.append(frame)
        return here, passing


class _Stage:
    """The buckets of a task for the time of an epoch; operators of one task pass frames on directly."""

    def __init__(self, task: LiveOperatorTask) -> None:
        self._task = task
        self._buckets: dict[int, dict[int, _Bucket]] = {number: {} for number in task.operators}

    def take(self, here: _Inboxes) -> Iterator[pa.RecordBatch]:
        """What the operators send on for frames; those for later operators here are added to ``here``."""
        for number, inboxes in here.items():
            for bucket, frames in inboxes.items():
                opened = self._opened(number, bucket)
                for outbox in opened.step(frames):
                    yield from self._sent(number, opened, outbox, here)

    def close(self) -> Iterator[pa.RecordBatch]:
        """What the operators send on at the end of the epoch, each after all that comes before it."""
        here: _Inboxes = {number: {} for number in self._task.operators}
        for number in self._task.operators:
            for bucket, frames in here[number].items():
                opened = self._opened(number, bucket)
                for outbox in opened.step(frames):
                    yield from self._sent(number, opened, outbox, here)
            for opened in self._buckets[number].values():
                yield from self._sent(number, opened, opened.close(), here)

    def _opened(self, number: int, bucket: int) -> _Bucket:
        buckets = self._buckets[number]
        if bucket not in buckets:
            buckets[bucket] = _Bucket(self._task, self._task.operators[number], bucket)
        return buckets[bucket]

    def _sent(self, number: int, bucket: _Bucket, outbox: Outbox, here: _Inboxes) -> Iterator[pa.RecordBatch]:
        operator = self._task.operators[number]
        if operator.is_last:
            yield from bucket.results(outbox)
            return
        bundles: list[Frame] = []
        for to, frames in operator.addressed(bucket.number, outbox):
            if to in operator.beside:
                here[to].setdefault(bucket.number, []).extend(frames)
            else:
                bundles += bundled(frames, to)
        bundles += operator.asked(bucket.number, outbox)
        if bundles:
            yield to_record_batch(with_fillers(bundles, behind_shuffle=True))


class _Bucket:
    """A bucket of an operator for the time of an epoch."""

    def __init__(self, task: LiveOperatorTask, operator: LiveOperator, number: int) -> None:
        self.number = number
        self._task, self._operator = task, operator
        spec = operator.spec
        self._store: EpochStore = task.epochs.open("operators", spec.name, str(number))
        memory = task.memory.here()
        working_set = working_sets(memory).get(task.run_id, spec.name, str(number))
        self._bucket = OpenBucket(
            spec,
            number,
            self._store,
            working_set,
            sizes=task.sizes.get(spec.name),
            max_step_bytes=memory.step_bytes,
        )
        self._side = Mail()

    def step(self, frames: Sequence[Frame]) -> Iterator[Outbox]:
        return self._operator.step(self._bucket, frames)

    def close(self) -> Outbox:
        task = self._task
        reported = self._bucket.close()
        task.epochs.write(self._store)
        if len(self._side) and task.side_folder is not None:  # the driver has deleted what earlier runs left
            write_side_rows(self._side, side_file_of(task.side_folder, task.epochs.current, self.number))
        return Outbox(self._operator.spec, self.number, {}, reported)

    def results(self, outbox: Outbox) -> Iterator[pa.RecordBatch]:
        """The results of the query; side rows are kept until the end of the epoch."""
        yield from result_batches(outbox, self._task.epochs.current)
        for frame in outbox.others:
            if frame.kind is FrameKind.SIDE:
                self._side.put(frame)


def result_column(query: int) -> str:
    """The column that holds the results of a query, one of those that run as one."""
    return f"{_RESULT}{query}"


def result_schema(spec: OperatorSpec) -> pa.Schema:
    """What the last operator yields: a row is the result of one query, or counters."""
    results = (pa.field(result_column(query), pa.struct(list(rows))) for query, rows in enumerate(spec.outputs))
    return pa.schema([pa.field(COUNTER, _COUNTER_TYPE), pa.field(EPOCH, pa.int64()), *results])


def result_batches(outbox: Outbox, epoch: int) -> Iterator[pa.RecordBatch]:
    """Yield what the last operator sends on: those of its changes that do not cancel out, and counters."""
    schema, has_results = result_schema(outbox.spec), False
    for query in range(len(outbox.spec.outputs)):
        rows = outbox.results(query)
        if rows is not None and (rows := settled(rows)).num_rows:
            columns = {EPOCH: pa.repeat(pa.scalar(epoch, pa.int64()), rows.num_rows)}
            columns[result_column(query)] = rows.to_struct_array()
            yield from _with_nulls(columns, rows.num_rows, schema).to_batches()
            has_results = True
    if has_results:  # a sink in Python gets a row when the next one is there, as operators do: this one has no epoch
        yield from _with_nulls({}, 1, schema).to_batches()
    counters = [frame for frame in outbox.others if frame.kind is FrameKind.COUNTER]
    if counters:
        values = pa.array([{"sender": each.part, "counters": bytes(each.payload)} for each in counters], _COUNTER_TYPE)
        yield from _with_nulls({COUNTER: values}, len(counters), schema).to_batches()


def _with_nulls(columns: Mapping[str, pa.Array], count: int, schema: pa.Schema) -> pa.Table:
    """The columns with all others of a schema, which are NULL."""
    return pa.table([columns.get(each.name, pa.nulls(count, each.type)) for each in schema], schema=schema)


def _pause_after(seconds: float) -> float:
    return min(max(_PAUSE_SECONDS, 2 * seconds), _LONGEST_PAUSE_SECONDS)


def _inboxes(here: _Inboxes) -> Iterator[list[Frame]]:
    return (frames for inboxes in here.values() for frames in inboxes.values())


def _frames(batches: Sequence[pa.RecordBatch]) -> list[Frame]:
    return [frame for batch in batches for frame in from_record_batch(batch)]
