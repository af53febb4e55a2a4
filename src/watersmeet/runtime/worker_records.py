"""Records that the workers read and decode themselves; Spark keeps the offsets.

    records ─ decode, project, pack ─ frames ──────────────────────────────┐
                  └─ records left ─ decode (Spark) ─ project (Spark) ─ pack ┴─ frames

Spark would decode one record at a time in the JVM, and encode its values as Arrow again.  A worker decodes thousands of
records at once, but only those for which the result is certain to be Spark's; the others pass on as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from watersmeet.columns import PACKED, PART, SEQUENCE, TP_TIME
from watersmeet.engine.frames import FRAME_DDL, FRAME_SCHEMA
from watersmeet.engine.pack import RAW_TEXT
from watersmeet.engine.projection import Projection, project, unusable
from watersmeet.records.decoder import Decoder
from watersmeet.records.records import Records
from watersmeet.runtime.worker_tasks import PackTask, worker_task


@dataclass(frozen=True, slots=True)
class RecordSource:
    """A source of records, and both ways of decoding them.

    - ``frame``: a streaming frame of what is to be read, such as ranges of offsets.
    - ``read``: reads, in a task, what a batch of the frame names.
    - ``raw``: the columns of a record as Spark's own reader returns it.
    - ``decoder``: decodes in the workers.
    - ``by_spark``: turns raw records into a source frame, which keeps a column ``_wm_packed``.
    - ``is_text``: whether a record is text, so that its bytes can be shown.
    - ``has_deltas``: whether the decoder's rows have a column ``_tp_delta``.
    """

    frame: DataFrame
    read: Callable[[pa.RecordBatch], Iterator[Records]] = field(repr=False)  # may hold secrets
    raw: pa.Schema
    decoder: Decoder
    by_spark: Callable[[DataFrame], DataFrame]
    is_text: bool
    has_deltas: bool = False


@dataclass(frozen=True, slots=True)
class RecordTask:
    """Reads, decodes and packs records; yields frames in ``_wm_packed`` beside the raw columns, and records left."""

    read: Callable[[pa.RecordBatch], Iterator[Records]] = field(repr=False)
    decoder: Decoder
    projection: Projection
    packing: PackTask
    raw: pa.Schema
    has_parts: bool

    @property
    def schema(self) -> StructType:
        """The columns that the task yields."""
        return from_arrow_schema(self._schema)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([pa.field(PACKED, pa.struct(list(FRAME_SCHEMA))), *self.raw])

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Frames of the records that the batches name, and the records that are left to Spark."""
        with worker_task():
            exchange, packer = self.packing.exchange, self.packing.packer()
            exchange.remove_old_files()
            for records in chain.from_iterable(map(self.read, batches)):
                rows, left = self._rows(records)
                for frame in packer.pack(rows):
                    yield self._packed(exchange.send([frame]))
                if len(left):
                    yield self._unpacked(records.raw(left))
            for frame in packer.finish():
                yield self._packed(exchange.send([frame]))

    def _rows(self, records: Records) -> tuple[pa.Table, np.ndarray]:
        """The rows to pack, and the numbers of the records that are left, among them those to quarantine."""
        decoded = self.decoder.decode(records.values)
        rows, numbers, left = decoded.rows, decoded.records, decoded.left
        names = [name for name in (PART, SEQUENCE, TP_TIME) if name in self._hidden]
        hidden = records.hidden(names, numbers)
        for name in names:
            rows = rows.append_column(name, hidden[name])
        bad = unusable(rows, self.projection).to_numpy()
        if bad.any():
            left = np.union1d(left, numbers[bad])
            good = ~np.isin(numbers, left)
            rows, numbers = rows.filter(pa.array(good)), numbers[good]
        projected = project(rows, self.projection)
        assert projected is not None
        if self.packing.spec.keeps_late:
            texts = records.values.take(pa.array(numbers)).cast(pa.string())
            projected = projected.set_column(projected.column_names.index(RAW_TEXT), RAW_TEXT, texts)
        if self.has_parts:
            projected = projected.append_column("$part", rows[PART])
        return projected, left

    @property
    def _hidden(self) -> set[str]:
        sequence = {SEQUENCE} if self.projection.sequence is not None else set()
        return {*self.projection.reads, *sequence, *([PART] if self.has_parts else [])}

    def _packed(self, frames: pa.RecordBatch) -> pa.RecordBatch:
        nothing = [pa.nulls(frames.num_rows, each.type) for each in self.raw]
        return pa.RecordBatch.from_arrays([frames.to_struct_array(), *nothing], schema=self._schema)

    def _unpacked(self, records: pa.RecordBatch) -> pa.RecordBatch:
        nothing = pa.nulls(records.num_rows, self._schema.field(PACKED).type)
        return pa.RecordBatch.from_arrays([nothing, *records.columns], schema=self._schema)


@dataclass(frozen=True, slots=True)
class RestTask:
    """Passes on frames, and packs the rows beside them, which Spark has decoded."""

    packing: PackTask

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The frames of all rows."""
        with worker_task():
            packer = self.packing.packer()
            for batch in batches:
                packed = batch.column(PACKED)
                is_frame = packed.is_valid()
                if packed.null_count < len(packed):
                    yield pa.RecordBatch.from_arrays(packed.filter(is_frame).flatten(), schema=FRAME_SCHEMA)
                if packed.null_count:
                    rows = pa.Table.from_batches([batch.filter(pc.invert(is_frame))]).drop_columns([PACKED])
                    for frame in packer.pack(rows):
                        yield self.packing.exchange.send([frame])
            for frame in packer.finish():
                yield self.packing.exchange.send([frame])


def decoded_in_workers(
    source: RecordSource,
    projection: Projection,
    packing: PackTask,
    project_by_spark: Callable[[DataFrame], DataFrame],
    *,
    has_parts: bool,
) -> DataFrame:
    """Frames of all records.  ``project_by_spark`` projects a source frame as ``projection`` does."""
    if source.has_deltas:
        assert projection.changes is not None
        projection = replace(projection, changes=replace(projection.changes, declares_delta=True))
    task = RecordTask(source.read, source.decoder, projection, packing, source.raw, has_parts)
    rest = project_by_spark(source.by_spark(source.frame.mapInArrow(task.run, task.schema)))
    return rest.mapInArrow(RestTask(packing).run, FRAME_DDL)
