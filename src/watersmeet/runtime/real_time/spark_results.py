"""Results that only Spark can turn into rows of another operator's input, on their way between two stages.

    operators ─ unpack ─ SELECT list, project (Spark) ─ pack ─ shuffle

All of it is one task of Spark.  Frames that are not asked of Spark pass as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.engine.frames import (
    FRAME_DDL,
    Frame,
    FrameKind,
    bundled,
    decode_table,
    from_record_batch,
    to_record_batch,
    with_fillers,
)
from watersmeet.engine.live_results import SparkReading
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.real_time.rows_and_frames import in_turn
from watersmeet.runtime.results import parts_of_results, rows_of_branch, with_others
from watersmeet.runtime.source_frames import Source, projected


def with_rows_by_spark(frames: DataFrame, plan: PhysicalPlan, reading: SparkReading, output: pa.Schema) -> DataFrame:
    """The frames that operators send on, with those for Spark replaced by the rows that it computes.

    ``output`` are the columns of the results.
    """
    part = plan.inputs[reading.input]
    unpacking = UnpackForSpark(reading, output)
    unpacked = frames.mapInArrow(unpacking.run, from_arrow_schema(unpacking.schema))
    source = Source(rows_of_branch(part, reading.branch, unpacked), parts_of_results(part), stores_frontier=True)
    return projected(part, source, plan.keeps_late).mapInArrow(PackFromSpark(reading).run, FRAME_DDL)


@dataclass(frozen=True, slots=True)
class UnpackForSpark:
    """Yields the rows of what a reading asks of Spark, and all other frames in ``_wm_packed``."""

    reading: SparkReading
    output: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of what ``run`` yields."""
        return with_others(self.output)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows and the frames in the order in which they come."""
        with live_task():
            arrivals = Arrivals(batches)
            while arrived := arrivals.take():
                for frame in (frame for batch in arrived for frame in from_record_batch(batch)):
                    if self.reading.takes(frame) and len(frame.payload):
                        yield from self._rows(frame)
                    else:
                        yield self._passed(frame)

    def _rows(self, frame: Frame) -> Iterator[pa.RecordBatch]:
        for rows in decode_table(frame.payload).to_batches():
            nothing = [pa.nulls(rows.num_rows, field.type) for field in list(self.schema)[-2:]]
            yield pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=self.schema)

    def _passed(self, frame: Frame) -> pa.RecordBatch:
        nothing = [pa.nulls(1, field.type) for field in list(self.schema)[:-1]]
        whole = to_record_batch([frame]).to_struct_array()
        return pa.RecordBatch.from_arrays([*nothing, whole], schema=self.schema)


@dataclass(frozen=True, slots=True)
class PackFromSpark:
    """Packs the rows of a reading as Spark has computed them, and passes on the frames beside them."""

    reading: SparkReading

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The frames of all rows, when their end has come, and all other frames."""
        with live_task():
            arrivals, rows = Arrivals(batches), list[pa.Table]()
            while arrived := arrivals.take():
                passing: list[Frame] = []
                for part in in_turn(arrived):
                    if isinstance(part, pa.Table):
                        rows.append(part)
                        continue
                    for frame in part:
                        if self.reading.takes(frame):
                            table = pa.concat_tables(rows).combine_chunks() if rows else None
                            passing += bundled(self.reading.packed(table, frame), self.reading.operator)
                            rows = []
                        elif frame.kind is not FrameKind.FILLER:
                            passing.append(frame)
                if passing:
                    yield to_record_batch(with_fillers(passing, behind_shuffle=True))
