"""Parquet files that the workers read themselves; Spark lists them, tracks what has been read, and forms batches.

A task gets the names of its files, reads them as Arrow, and packs them.  Spark would decode the rows, copy them into
rows of the JVM, and encode them as Arrow again, one value at a time, which costs more than a join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.columns import TP_DELTA, TP_TIME
from watersmeet.engine.frames import FRAME_DDL
from watersmeet.engine.parquet import ParquetRows, RowFile
from watersmeet.engine.projection import Projection, project
from watersmeet.runtime.worker_tasks import PackTask

#: The column of a listing that holds when files arrive (NULL: each row has its own time).
ARRIVAL = "arrival"


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The files of a source: a streaming frame that lists them, and what makes files of its batches.

    ``schema`` has the columns that can be read of the files, and ``_tp_time``.  ``has_deltas``: also ``_tp_delta``.
    """

    frame: DataFrame
    schema: pa.Schema
    files: Callable[[pa.RecordBatch], Iterator[RowFile]]
    has_deltas: bool = False


def scanned(files: ParquetFiles, projection: Projection, packing: PackTask) -> DataFrame:
    """Frames of the files' rows, packed in the task that reads them."""
    packing, files_of = packing.without_numbers(), files.files
    if files.has_deltas:
        projection = _with_deltas(projection)
    needed = ParquetRows(_columns(files.schema, projection.reads), projection.sequence is not None)
    extra = [name for name in projection.record if name not in projection.reads]
    whole = ParquetRows(_columns(files.schema, (*projection.reads, *extra)), needed.numbered)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            part for batch in batches for file in files_of(batch) for part in _read(file, projection, needed, whole)
        )
        yield from packing.run(rows)

    frame = files.frame
    if TP_TIME not in whole.schema.names and ARRIVAL in frame.columns:
        # Spark puts the time of arrival into the code that it generates, so it would compile that for every batch
        frame = frame.withColumn(ARRIVAL, F.lit(None).cast("timestamp"))
    return frame.mapInArrow(run, FRAME_DDL)


def _with_deltas(projection: Projection) -> Projection:
    """Return the projection of rows that bring their delta, as if the stream declared it."""
    assert projection.changes is not None
    changes = replace(projection.changes, declares_delta=True)
    return replace(projection, changes=changes, reads=(*projection.reads, TP_DELTA))


def _columns(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _read(file: RowFile, projection: Projection, needed: ParquetRows, whole: ParquetRows) -> Iterator[pa.RecordBatch]:
    """Read the rows as packing needs them; from the first part with a row to quarantine on, read all columns."""
    done = 0
    for rows in file.read(needed):
        if (projected := project(rows, projection)) is None:
            break
        yield from projected.to_batches()
        done += rows.num_rows
    else:
        return
    for rows in _without_first(file.read(whole), done):
        projected = project(rows, projection)
        assert projected is not None
        yield from projected.to_batches()


def _without_first(parts: Iterator[pa.Table], count: int) -> Iterator[pa.Table]:
    """Yield parts without their first rows: with more columns, parts have fewer rows."""
    for rows in parts:
        if count < rows.num_rows:
            yield rows.slice(count)
        count = max(count - rows.num_rows, 0)
