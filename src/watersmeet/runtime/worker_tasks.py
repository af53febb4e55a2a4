"""What a Python worker does in one Spark task: pack rows into frames, take a step of an operator, or unpack frames.

This module connects Spark's tasks with ``watersmeet.engine``, which does not know Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd
import pyarrow as pa

from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.engine.bucket_task import Member, run_task
from watersmeet.engine.frames import FRAME_SCHEMA, Frame
from watersmeet.engine.hot_keys import NO_ENTRY, Entry
from watersmeet.engine.pack import Packer, pack
from watersmeet.engine.specs import OperatorSpec, PackSpec
from watersmeet.engine.unpack import side_file_of, unpack
from watersmeet.runtime.bucket_size_files import BucketSizeFiles
from watersmeet.runtime.exchange import Exchange, batch_id, partition
from watersmeet.runtime.hot_key_files import HotKeyFiles
from watersmeet.runtime.memory_setting import MemorySetting
from watersmeet.state.freed_memory import give_back_what_is_freed, release_unused
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.store import NamedStore, Store
from watersmeet.state.worker_memory import WorkerMemory
from watersmeet.state.working_sets import WorkingSets


@dataclass(frozen=True, slots=True)
class PackTask:
    """Packs the rows of one source, spreading the batch's hot keys, and sends the frames."""

    spec: PackSpec
    exchange: Exchange
    hot_keys: HotKeyFiles | None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Frames of the rows, as Spark carries them."""
        with worker_task():
            self.exchange.remove_old_files()
            for frame in pack(batches, self.spec, self._hot_keys()):
                yield self.exchange.send([frame])

    def packer(self) -> Packer:
        """A packer for the rows of a task that sends more than frames."""
        return Packer(self.spec, self._hot_keys())

    def without_numbers(self) -> PackTask:
        """The same task for rows that have distinct places, so that rows of one place need no numbers."""
        return replace(self, spec=replace(self.spec, sequence=None))

    def _hot_keys(self) -> Entry:
        return self.hot_keys.read() if self.hot_keys is not None else NO_ENTRY


@dataclass(frozen=True, slots=True)
class OperatorTask:
    """Takes steps of the operators of a query that run in one task.

    ``run`` identifies the run of the query, so that no working set of another run is used.  In ``folder``, the run's
    own, workers of one machine leave segments for each other.  ``hot_keys`` and ``sizes`` are the logs of operators
    that have them, by name.
    """

    members: tuple[Member, ...]
    run: str
    memory: MemorySetting
    folder: str
    exchange: Exchange
    hot_keys: Mapping[str, HotKeyFiles]
    sizes: Mapping[str, BucketSizeFiles]

    def step(self, bucket: int, chunks: Iterable[pd.DataFrame], store: Store) -> Iterator[pd.DataFrame]:
        """Process all frames of one bucket; the frames that the last operator sends come back."""
        with worker_task():
            received = (frame for chunk in chunks for frame in self._received(chunk))
            memory = self.memory.here()
            if memory.is_little:
                give_back_what_is_freed()
            sets = working_sets(memory)

            def open_bucket(spec: OperatorSpec) -> OpenBucket:
                return OpenBucket(
                    spec,
                    bucket,
                    store if len(self.members) == 1 else NamedStore(store, state_prefix(spec.name)),
                    sets.get(self.run, spec.name, str(bucket)),
                    LocalCopies(self.folder, f"{spec.name}-{bucket}"),
                    self.hot_keys.get(spec.name),
                    self.sizes.get(spec.name),
                    memory.step_bytes,
                )

            for frames in self.exchange.send_in_batches(run_task(self.members, bucket, received, open_bucket)):
                yield frames.to_pandas()
            sets.tidy()

    def _received(self, chunk: pd.DataFrame) -> Iterator[Frame]:
        return self.exchange.receive(pa.RecordBatch.from_pandas(chunk, schema=FRAME_SCHEMA, preserve_index=False))


@dataclass(frozen=True, slots=True)
class UnpackTask:
    """Unpacks result frames into rows of ``schema``, and writes side rows to ``side_folder`` (None: drops them)."""

    schema: pa.Schema
    exchange: Exchange
    side_folder: str | None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the frames."""
        with worker_task():
            folder = self.side_folder
            side_file = None if folder is None else side_file_of(folder, batch_id(), partition())
            yield from unpack(map(self.exchange.receive, batches), self.schema, side_file)


def state_prefix(operator: str) -> str:
    """How the names of an operator's values begin in the store of a task of several operators."""
    return f"{operator}/"


@cache
def working_sets(memory: WorkerMemory) -> WorkingSets:
    """The working sets of this worker process, one collection for each size of it: workers outlive queries."""
    return WorkingSets(
        keyed_bytes=memory.keyed_bytes, table_bytes=memory.table_bytes, has_little_memory=memory.is_little
    )


@contextmanager
def worker_task() -> Iterator[None]:
    """Keep the files that a task writes for their owner alone, and release unused memory at its end.

    A query has several Python processes per core, of which one works at a time.  Arrow keeps the memory that it frees,
    but the next task needs it in another process.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
        release_unused()
