"""How frames travel between the tasks of a query.

Spark copies a payload half a dozen times on its way through the JVM.  If all workers are on one machine, large payloads
bypass it: they are files in the run's folder, and the frames carry the files' names.

Every attempt of a task writes files of its own.  They stay until the run's next batch begins, when all tasks of this
batch have ended; so whichever attempt counts, its readers find the rows.  Several runs share a folder if they were
started from the same DataFrame.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from watersmeet.engine.frames import Frame, from_record_batch, to_record_batch
from watersmeet.errors import WatersmeetError

_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
_QUERY_ID = "sql.streaming.queryId"
#: How many more batches a query has taken than those in Spark's checkpoint: the property of its tasks.
BATCHES_BEFORE = "watersmeet.batchesBefore"
_MIN_BYTES = 64 * 1024
_BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Exchange:
    """Sends and receives frames; ``folder`` is the run's (None: there are workers on other machines)."""

    folder: str | None
    min_bytes: int = _MIN_BYTES

    def send(self, frames: Iterable[Frame]) -> pa.RecordBatch:
        """Encode frames as one Arrow batch."""
        return to_record_batch(self._put(frame) for frame in frames)

    def send_in_batches(self, frames: Iterable[Frame]) -> Iterator[pa.RecordBatch]:
        """Encode frames as they come, in one Arrow batch or several with payloads of about ``_BATCH_BYTES`` each."""
        gathered: list[Frame] = []
        nbytes = 0
        for frame in map(self._put, frames):
            gathered.append(frame)
            nbytes += len(frame.payload)
            if nbytes >= _BATCH_BYTES:
                yield to_record_batch(gathered)
                gathered, nbytes = [], 0
        yield to_record_batch(gathered)

    def receive(self, batch: pa.RecordBatch) -> Iterator[Frame]:
        """Decode the frames of a batch, with their payloads."""
        return map(self._get, from_record_batch(batch))

    def remove_old_files(self) -> None:
        """Delete the files of earlier batches; only tasks that receive no frames may call this."""
        if self.folder is None:
            return
        current = batch_id()
        with suppress(OSError):
            for path in Path(self.folder).glob(f"{run_id()}-*.frame"):
                if int(path.name.split("-")[1]) < current:
                    path.unlink(missing_ok=True)  # another task may delete it too

    def _put(self, frame: Frame) -> Frame:
        if self.folder is None or not frame.kind.is_bulk or len(frame.payload) < self.min_bytes:
            return frame
        name = f"{run_id()}-{batch_id()}-{uuid.uuid4().hex}.frame"
        Path(self.folder, name).write_bytes(frame.payload)
        return replace(frame, part=name, payload=b"")

    def _get(self, frame: Frame) -> Frame:
        if not frame.kind.is_bulk or not frame.part:
            return frame
        try:
            mapped = pa.memory_map(f"{self.folder}/{frame.part}").read_buffer()
        except OSError as error:
            raise WatersmeetError(
                f"rows that one task sent to another are gone: {error}",
                hint="was the folder for temporary files emptied? Resume the query: no rows are lost",
            ) from None
        return replace(frame, part="", payload=mapped)


def batch_id() -> int:
    """The number of this task's micro-batch, which goes on where the query went on with another number of buckets."""
    return int(_task_property(_BATCH_ID) or 0) + int(_task_property(BATCHES_BEFORE) or 0)


def partition() -> int:
    """The number of this task among those of its stage."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def query_id() -> str:
    """The id of this task's query, which restarts keep."""
    return _task_property(_QUERY_ID)


def run_id() -> str:
    """An id of this run of the query, in hexadecimal digits."""
    return hashlib.blake2b(_task_property(_RUN_ID).encode(), digest_size=8).hexdigest()


def _task_property(name: str) -> str:
    context = TaskContext.get()
    return (context.getLocalProperty(name) or "") if context is not None else ""
