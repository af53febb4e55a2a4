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

from watersmeet.columns import PACKED, PART, RECORD_COLUMNS, SEQUENCE, TP_TIME
from watersmeet.engine.frames import FRAME_DDL, FRAME_SCHEMA
from watersmeet.engine.pack import RAW_TEXT
from watersmeet.engine.projection import Projection, project, unusable
from watersmeet.records.decoder import Decoder
from watersmeet.records.records import Records
from watersmeet.runtime.worker_tasks import PackTask, worker_task


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Both ways of decoding a source's records.

    - ``raw``: the columns of a record as Spark's own reader returns it.
    - ``decoder``: decodes in the workers (None: only Spark can decode these records).
    - ``by_spark``: turns raw records into a source frame, which keeps a column ``_wm_packed``.
    - ``is_text``: whether a record is text, so that its bytes can be shown.
    - ``has_deltas``: whether the decoder's rows have a column ``_tp_delta``.
    """

    raw: pa.Schema
    decoder: Decoder | None
    by_spark: Callable[[DataFrame], DataFrame]
    is_text: bool
    has_deltas: bool = False


@dataclass(frozen=True, slots=True)
class RecordSource:
    """A source of records, ``read`` in a task: what a batch of the streaming ``frame`` names."""

    frame: DataFrame
    read: Callable[[pa.RecordBatch], Iterator[Records]] = field(repr=False)  # may hold secrets
    format: RecordFormat


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Turns records into rows to pack, and into records that are left to Spark, beside frames in ``_wm_packed``.

    Without a ``decoder`` and a ``projection`` all records are left.
    """

    decoder: Decoder | None
    projection: Projection | None
    packing: PackTask
    raw: pa.Schema
    has_parts: bool

    @property
    def schema(self) -> StructType:
        """The columns of ``packed`` and ``unpacked``."""
        return from_arrow_schema(self._schema)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([pa.field(PACKED, pa.struct(list(FRAME_SCHEMA))), *self.raw])

    def split(self, records: Records) -> tuple[pa.Table | None, np.ndarray]:
        """The rows to pack, and the numbers of the records that are left, among them those to quarantine."""
        if self.decoder is None or self.projection is None:
            return None, np.arange(len(records.values))
        decoded = self.decoder.decode(records.values)
        rows, numbers, left = decoded.rows, decoded.records, decoded.left
        names = [name for name in (PART, SEQUENCE, TP_TIME, *RECORD_COLUMNS) if name in self._hidden(self.projection)]
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

    def packed(self, frames: pa.RecordBatch) -> pa.RecordBatch:
        """Frames, without raw records beside them."""
        nothing = [pa.nulls(frames.num_rows, each.type) for each in self.raw]
        return pa.RecordBatch.from_arrays([frames.to_struct_array(), *nothing], schema=self._schema)

    def unpacked(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Raw records, without frames beside them."""
        nothing = pa.nulls(records.num_rows, self._schema.field(PACKED).type)
        return pa.RecordBatch.from_arrays([nothing, *records.columns], schema=self._schema)

    def _hidden(self, projection: Projection) -> set[str]:
        sequence = {SEQUENCE} if projection.sequence is not None else set()
        return {*projection.reads, *sequence, *([PART] if self.has_parts else [])}


@dataclass(frozen=True, slots=True)
class RecordTask:
    """Reads, decodes and packs records; yields frames, and the records left."""

    read: Callable[[pa.RecordBatch], Iterator[Records]] = field(repr=False)
    rows: RecordRows

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Frames of the records that the batches name, and the records that are left to Spark."""
        with worker_task():
            packing = self.rows.packing
            exchange, packer = packing.exchange, packing.packer()
            exchange.remove_old_files()
            for records in chain.from_iterable(map(self.read, batches)):
                rows, left = self.rows.split(records)
                for frame in packer.pack(rows) if rows is not None else ():
                    yield self.rows.packed(exchange.send([frame]))
                if len(left):
                    yield self.rows.unpacked(records.raw(left))
            for frame in packer.finish():
                yield self.rows.packed(exchange.send([frame]))


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
    rows = record_rows(source.format, projection, packing, has_parts=has_parts)
    task = RecordTask(source.read, rows)
    rest = project_by_spark(source.format.by_spark(source.frame.mapInArrow(task.run, rows.schema)))
    return rest.mapInArrow(RestTask(packing).run, FRAME_DDL)


def record_rows(
    format: RecordFormat, projection: Projection | None, packing: PackTask, *, has_parts: bool
) -> RecordRows:
    """What turns records of a format into rows."""
    if projection is not None and format.has_deltas:
        assert projection.changes is not None
        projection = replace(projection, changes=replace(projection.changes, declares_delta=True))
    return RecordRows(format.decoder, projection, packing, format.raw, has_parts)
