"""How frames travel between the tasks of a query.

As rows of Spark, which copies a payload half a dozen times on its way through the JVM.  Where all workers are on one
machine, large payloads stay out of it: they lie in files of the run's folder, and frames travel with the file's name.

Every attempt of a task writes files of its own, and they stay until the run's next batch, which begins once all tasks
of this one have ended: whatever attempt counts, whoever reads the frames finds the rows.  Several runs may share a
folder, those that were started of one and the same DataFrame.
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
_LEAST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Exchange:
    """Sends and receives frames; ``folder`` is that of the run (None: there are workers on other machines)."""

    folder: str | None
    least_bytes: int = _LEAST_BYTES

    def send(self, frames: Iterable[Frame]) -> pa.RecordBatch:
        """Frames as one Arrow batch."""
        return to_record_batch(self._put(frame) for frame in frames)

    def receive(self, batch: pa.RecordBatch) -> Iterator[Frame]:
        """The frames of a batch, with their rows."""
        return map(self._get, from_record_batch(batch))

    def tidy(self) -> None:
        """Take away what earlier batches have left; a task that sends, and receives nothing, does so."""
        if self.folder is None:
            return
        current = batch_id()
        with suppress(OSError):
            for path in Path(self.folder).glob(f"{run_id()}-*.frame"):
                if int(path.name.split("-")[1]) < current:
                    path.unlink(missing_ok=True)  # another task may just have done so

    def _put(self, frame: Frame) -> Frame:
        if self.folder is None or not frame.kind.has_rows or len(frame.payload) < self.least_bytes:
            return frame
        name = f"{run_id()}-{batch_id()}-{uuid.uuid4().hex}.frame"
        Path(self.folder, name).write_bytes(frame.payload)
        return replace(frame, part=name, payload=b"")

    def _get(self, frame: Frame) -> Frame:
        if not frame.kind.has_rows or not frame.part:
            return frame
        try:
            mapped = pa.memory_map(f"{self.folder}/{frame.part}").read_buffer()
        except OSError as error:
            raise WatersmeetError(
                f"rows on their way between two tasks are gone: {error}",
                hint="was the folder for temporary files emptied? Resume the query: nothing was lost",
            ) from None
        return replace(frame, part="", payload=mapped)


def batch_id() -> int:
    """The number of the micro-batch that this task is part of."""
    return int(_told(_BATCH_ID) or 0)


def query_id() -> str:
    """What tells this query from others, also after a restart."""
    return _told(_QUERY_ID)


def run_id() -> str:
    """Something that tells this run of a query from others, in hexadecimal digits."""
    return hashlib.blake2b(_told(_RUN_ID).encode(), digest_size=8).hexdigest()


def _told(name: str) -> str:
    context = TaskContext.get()
    return (context.getLocalProperty(name) or "") if context is not None else ""
