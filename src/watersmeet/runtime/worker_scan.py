"""Parquet files that the workers read themselves; Spark lists them, tracks what has been read, and forms batches.

A task gets the names of its files, reads them as Arrow, and packs them.  Spark would decode the rows, copy them into
rows of the JVM, and encode them as Arrow again, one value at a time, which costs more than a join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.columns import TP_TIME
from watersmeet.engine.frames import FRAME_DDL
from watersmeet.engine.parquet import ParquetFile, ParquetRows, read_parquet
from watersmeet.engine.projection import Projection, project
from watersmeet.runtime.worker_tasks import PackTask


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The files of a source: a streaming frame of ``uri``, ``place`` and ``arrival`` (NULL: each row has its own).

    ``schema`` has the columns of the files, and ``_tp_time``; ``root`` is their common folder.
    """

    frame: DataFrame
    schema: pa.Schema
    root: str


def scanned(files: ParquetFiles, projection: Projection, packing: PackTask) -> DataFrame:
    """Frames of the files' rows, packed in the task that reads them."""
    packing = packing.without_numbers()
    needed = ParquetRows(_columns(files.schema, projection.reads), files.root, projection.sequence is not None)
    extra = [name for name in projection.record if name not in projection.reads]
    whole = ParquetRows(_columns(files.schema, (*projection.reads, *extra)), files.root, needed.numbered)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (part for batch in batches for file in _files(batch) for part in _read(file, projection, needed, whole))
        yield from packing.run(rows)

    frame = files.frame
    if TP_TIME not in whole.schema.names:
        # Spark puts the time of arrival into the code that it generates, so it would compile that for every batch
        frame = frame.withColumn("arrival", F.lit(None).cast("timestamp"))
    return frame.mapInArrow(run, FRAME_DDL)


def _columns(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])


def _files(batch: pa.RecordBatch) -> Iterator[ParquetFile]:
    for uri, place, arrival in zip(*(batch.column(i) for i in range(3)), strict=True):
        yield ParquetFile(uri.as_py(), place.as_py(), arrival if arrival.is_valid else None)


def _read(
    file: ParquetFile, projection: Projection, needed: ParquetRows, whole: ParquetRows
) -> Iterator[pa.RecordBatch]:
    """Read the rows as packing needs them; from the first part with a row to quarantine on, read all columns."""
    done = 0
    for rows in read_parquet(file, needed):
        if (projected := project(rows, projection)) is None:
            break
        yield from projected.to_batches()
        done += 1
    else:
        return
    for rows in islice(read_parquet(file, whole), done, None):
        projected = project(rows, projection)
        assert projected is not None
        yield from projected.to_batches()
