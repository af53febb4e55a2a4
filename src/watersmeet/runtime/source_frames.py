"""The rows of sources as streaming DataFrames: the columns that a query needs, and the frames that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from watersmeet.engine.frames import FRAME_DDL
from watersmeet.plan.physical_plan import PhysicalInput, PhysicalPlan
from watersmeet.plan.worker_projection import worker_projection
from watersmeet.runtime.real_time.tails import LiveRecords
from watersmeet.runtime.results import empty_results, parts_of_results
from watersmeet.runtime.run_progress import Measure
from watersmeet.runtime.source_columns import source_columns
from watersmeet.runtime.worker_records import RecordSource, decoded_in_workers
from watersmeet.runtime.worker_scan import ParquetFiles, scanned
from watersmeet.runtime.worker_tasks import PackTask


@dataclass(frozen=True, slots=True)
class Source:
    """A stream's rows as a source frame (see connectors/__init__.py), and the parts that have frontiers.

    ``stores_frontier``: the rows bring ``_frontier``, written by the stream's producer.  ``files`` and ``records``: the
    Parquet files or the records that hold the rows, if workers can read them.  ``live``: what a query in real time
    follows instead.  ``measures``: how to measure what there is to read, of each part; none where that is not known.
    """

    frame: DataFrame
    parts: tuple[str, ...] = ("",)
    stores_frontier: bool = False
    files: ParquetFiles | None = None
    records: RecordSource | None = None
    live: LiveRecords | None = None
    measures: tuple[Measure, ...] = ()


def parts_of(plan: PhysicalPlan, sources: Mapping[str, Source]) -> list[tuple[str, ...]]:
    """The parts of each input that have frontiers of their own."""
    return [
        parts_of_results(part) if part.branches else sources[part.input.stream.name.lower()].parts
        for part in plan.inputs
    ]


def input_schemas(spark: SparkSession, plan: PhysicalPlan, sources: Mapping[str, Source]) -> list[pa.Schema]:
    """The columns of each input's rows as they are packed."""
    found = []
    for part in plan.inputs:
        if part.branches:
            source = Source(empty_results(spark, part), parts_of_results(part), stores_frontier=True)
        else:
            source = sources[part.input.stream.name.lower()]
        found.append(arrow_schema(projected(part, source, plan.keeps_late)))
    return found


def projected(part: PhysicalInput, source: Source, keeps_late: bool) -> DataFrame:
    """The columns of a source that an input needs, computed by Spark."""
    return source_columns(
        part,
        source.frame,
        keeps_late=keeps_late,
        has_parts=source.parts != ("",),
        stores_frontier=source.stores_frontier,
    )


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """A frame's columns as Arrow's, with times in UTC."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def packed(part: PhysicalInput, source: Source, schema: pa.Schema, task: PackTask) -> DataFrame:
    """The rows of a source as frames; ``schema`` are its projected columns."""
    by_workers = _by_workers(part, source, schema, task)
    if by_workers is not None:
        return by_workers
    return projected(part, source, task.spec.keeps_late).mapInArrow(task.run, FRAME_DDL)


def _by_workers(part: PhysicalInput, source: Source, schema: pa.Schema, task: PackTask) -> DataFrame | None:
    """Frames of rows that workers read themselves; None if Spark must read the rows or compute columns."""
    files, records, keeps_late = source.files, source.records, task.spec.keeps_late
    can_show = records is not None and (records.format.is_text or not keeps_late)
    can_read = can_show or (files is not None and not keeps_late)
    declared = arrow_schema(source.frame)
    projection = worker_projection(part, declared, schema, one_row_each=files is None) if can_read else None
    if projection is None:
        return None
    if files is not None:
        return scanned(files, projection, task)
    assert records is not None

    def by_spark(frame: DataFrame) -> DataFrame:
        return projected(part, replace(source, frame=frame), keeps_late)

    return decoded_in_workers(records, projection, task, by_spark, has_parts=source.parts != ("",))
