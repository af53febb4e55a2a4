"""What a simulated worker does in a task: the same as in runtime/worker_tasks.py, with pauses between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tests.simulation.actors import pause
from tests.simulation.decisions import Decisions
from tests.simulation.state import AttemptStore, StateVersions
from tests.simulation.workers import Worker
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.bucket_task import Member, run_task
from watersmeet.engine.frames import Frame, FrameKind
from watersmeet.engine.hot_keys import NO_ENTRY
from watersmeet.engine.pack import pack
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.engine.unpack import side_file_of, unpack
from watersmeet.runtime.bucket_size_files import BucketSizeFiles
from watersmeet.runtime.exchange import Exchange
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.runtime.worker_tasks import state_prefix
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.store import NamedStore

SIDE_FOLDER, _HOT_KEYS, _SIZES = "checkpoint/side", "checkpoint/hot_keys", "checkpoint/sizes"
#: Frames as they travel: what an attempt at a task sends.
Sent = Sequence[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Given:
    """What an attempt at a task of the last operator gives: rows of each query, and counters."""

    rows: Sequence[Sequence[pa.Table]]
    counters: Sequence[Frame]


@dataclass(frozen=True, slots=True)
class RunOfBatch:
    """One batch, as the workers of a run see it.

    Payloads of ``exchange_bytes`` and more are files in ``exchange_folder`` (None: none are).  ``schemas`` are those
    of the results of each query.
    """

    run: str
    batch: int
    decisions: Decisions
    versions: StateVersions
    exchange_folder: str | None
    exchange_bytes: int
    max_step_bytes: int | None
    schemas: Sequence[pa.Schema]

    def pack(self, rows: pa.Table, spec: PackSpec, operator: OperatorSpec) -> Sent:
        """Pack some rows of a source."""
        hot_keys = _hot_keys(operator)
        exchange = self._exchange()
        exchange.remove_old_files()
        sent = []
        batches = rows.to_batches(max_chunksize=self.decisions.one_of([1, 3, 1000]))
        for frame in pack(batches, spec, NO_ENTRY if hot_keys is None else hot_keys.read()):
            sent.append(exchange.send([frame]))
            if frame.kind is FrameKind.ROWS:
                pause()
        return sent

    def operate(
        self, members: Sequence[Member], arriving: Sequence[tuple[int, Sequence[Sent]]], worker: Worker
    ) -> Sent:
        """Take a step of the buckets of one task, with what has been sent to each of them."""
        exchange, name = self._exchange(), members[-1].spec.name
        stores: list[tuple[int, AttemptStore]] = []
        sent: list[Frame] = []
        for bucket, sent_by in arriving:
            frames = [
                frame
                for each in sent_by
                for batch in each
                for frame in exchange.receive(batch)
                if frame.bucket == bucket
            ]
            if not frames:  # Spark calls no function for a key without rows
                continue
            store = self.versions.open((name, bucket), self.batch)

            def opened(spec: OperatorSpec, bucket=bucket, store=store) -> OpenBucket:  # type: ignore[no-untyped-def]
                return OpenBucket(
                    spec,
                    bucket,
                    store if len(members) == 1 else NamedStore(store, state_prefix(spec.name)),
                    worker.sets.get(self.run, spec.name, str(bucket)),
                    LocalCopies(str(worker.machine.folder / self.run), f"{spec.name}-{bucket}"),
                    _hot_keys(spec),
                    _sizes(spec),
                    self.max_step_bytes,
                )

            for frame in run_task(members, bucket, self.decisions.shuffled(frames), opened):
                sent.append(frame)
                if frame.kind is FrameKind.ROWS:
                    pause()
            stores.append((bucket, store))
        batches = list(exchange.send_in_batches(sent))
        worker.sets.tidy()
        pause()
        for bucket, store in stores:
            self.versions.commit((name, bucket), self.batch, store)
        return batches

    def give(self, sent: Sent) -> Given:
        """Unpack what the last operator sends, in batches as Arrow happens to cut them."""
        frames = self.received(sent)
        rows = []
        for number, schema in enumerate(self.schemas):
            own = [frame for frame in frames if len(self.schemas) == 1 or frame.input == number]
            batches = [own[start:stop] for start, stop in self.decisions.cut(len(own), 3)]
            unpacked = unpack(batches, schema, None if number else side_file_of(SIDE_FOLDER, self.batch, 0))
            rows.append([pa.Table.from_batches([each]) for each in unpacked])
        return Given(rows, [frame for frame in frames if frame.kind is FrameKind.COUNTER])

    def received(self, sent: Sent) -> list[Frame]:
        """The frames that a task has sent, with their payloads."""
        exchange = self._exchange()
        return [frame for batch in sent for frame in exchange.receive(batch)]

    def _exchange(self) -> Exchange:
        return Exchange(self.exchange_folder, self.exchange_bytes)


def _hot_keys(spec: OperatorSpec) -> HotKeyFiles | None:
    return None if spec.spread is None else HotKeyFiles(_HOT_KEYS, f"{spec.name}-{spec.fingerprint}")


def _sizes(spec: OperatorSpec) -> BucketSizeFiles | None:
    if spec.max_state_bytes is None or len(spec.buckets) == 1:
        return None
    return BucketSizeFiles(_SIZES, f"{spec.name}-{spec.fingerprint}")
