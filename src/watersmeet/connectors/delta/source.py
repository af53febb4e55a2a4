"""A Delta table as a stream: its files are listed by Spark's driver, and read by the workers.

Where a query needs what only Spark computes, the workers hand the rows to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType, TimestampType

from watersmeet.catalog.streams import StreamMode
from watersmeet.columns import SEQUENCE, TP_TIME
from watersmeet.connectors.connector import Reading
from watersmeet.connectors.delta.changes import Begin
from watersmeet.connectors.delta.extent import table_measure
from watersmeet.connectors.delta.listing import Listing, snapshot_of, stream_of
from watersmeet.connectors.delta.log import About, DeltaLog
from watersmeet.connectors.delta.options import DeltaOptions, options_of
from watersmeet.connectors.delta.schema import Declared
from watersmeet.connectors.deltas import DELTA_FIELD
from watersmeet.engine.delta import DeltaTable, Ending
from watersmeet.engine.parquet import ParquetRows
from watersmeet.errors import ConfigError, ConnectorError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.worker_scan import ParquetFiles
from watersmeet.runtime.worker_tasks import worker_task
from watersmeet.settings.secrets import masked_value
from watersmeet.settings.secrets import resolve as resolved
from watersmeet.settings.seek import EARLIEST, LATEST, resolve


def open_source(reading: Reading) -> Source:
    """Return the table as a source, from where the query began; raises ``ConnectorError`` if it does not fit."""
    given = options_of(reading.stream.options)
    table = _table(reading, given, changes=reading.stream.changes)
    begin = _begin(reading, given, table)
    listing = table.listing(begin, given.max_files_per_trigger if reading.limited else None)
    listed = stream_of(reading.spark, listing)
    files = ParquetFiles(listed, table.schema, table.rows.files, has_deltas=reading.stream.changes)
    return Source(table.frame(listed), files=files, measures=(table_measure(listing),))


def open_stored(reading: Reading) -> DataFrame:
    """Return the rows that the table has now; raises ``ConnectorError`` if it does not fit."""
    table = _table(reading, options_of(reading.stream.options), changes=False)
    return table.frame(snapshot_of(reading.spark, table.listing(Begin(table.newest.version, snapshot=True), None)))


@dataclass(frozen=True, slots=True)
class _Table:
    """The table of a stream, as it is now; ``schema`` are the columns that can be read of its files."""

    reading: Reading
    given: DeltaOptions
    log: DeltaLog
    newest: About
    declared: Declared
    rows: DeltaTable
    schema: pa.Schema

    def listing(self, begin: Begin, limit: int | None) -> Listing:
        """The files from a place on."""
        return Listing(
            self.log,
            self.declared,
            self.newest.metadata.id,
            begin,
            self.reading.spark.sparkContext.defaultParallelism,
            limit,
            self.given.skip_change_commits,
            self.rows.deletes is not None,
        )

    def frame(self, listed: DataFrame) -> DataFrame:
        """The rows of listed files as a source frame."""
        rows, wanted = self.rows, ParquetRows(self.schema, numbered=True)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with worker_task():
                for batch in batches:
                    for file in rows.files(batch):
                        for part in file.read(wanted):
                            yield from part.to_batches()

        fields = [*from_arrow_schema(self.schema).fields, StructField(SEQUENCE, BinaryType())]
        return listed.mapInArrow(run, StructType(fields))


def _table(reading: Reading, given: DeltaOptions, *, changes: bool) -> _Table:
    """Return the table, with the rows that a stream or (without ``changes``) a batch reads.

    Raises ``ConnectorError`` if it does not fit the stream.
    """
    stream = reading.stream
    if not stream.columns:
        raise UnsupportedError(
            f"{stream.name} declares no columns, so its rows cannot be read", hint="create it with its columns"
        )
    if stream.column(TP_TIME) is not None:
        raise ConfigError(
            f"{stream.name} declares {TP_TIME}, which says when a row was committed", hint="leave the column out"
        )
    log = DeltaLog(table_root(resolved(given.path)), masked_value("path", given.path))
    newest = log.about()
    columns = to_arrow_schema(reading.columns, timezone="UTC")
    declared = Declared(columns, stream.name, log.shown, changes, newest.version)
    declared.check_features(newest.features, newest.version)
    declared.check(newest.metadata, newest.version)
    hidden = [StructField(TP_TIME, TimestampType()), *([DELTA_FIELD] if changes else [])]
    schema = to_arrow_schema(StructType([*reading.columns.fields, *hidden]), timezone="UTC")
    key, deletes = None, None
    if changes:
        names = {name.lower() for name in stream.primary_key}
        key = pa.schema([field for field in columns if field.name.lower() in names])
        if stream.mode is StreamMode.VERSIONED and stream.time_column != TP_TIME:
            deletes = Ending(stream.time_column, None if stream.time_unit is TimeUnit.ROWS else stream.time_unit.scale)
    rows = DeltaTable(log.shown, declared.names(newest.metadata), key, deletes)
    return _Table(reading, given, log, newest, declared, rows, schema)


def table_root(path: str) -> str:
    """Return the folder of a table as workers reach it: relative paths begin where the command runs."""
    if path.startswith("file:"):
        path = re.sub("^file:(//)?", "", path)
    return path if "://" in path else str(Path(path).absolute())


# -- where a query begins ----------------------------------------------------------------------------------------------


def _begin(reading: Reading, given: DeltaOptions, table: _Table) -> Begin:
    """Return where the query begins, or has begun: its checkpoint keeps that (of a DataFrame Spark's keeps it)."""

    def find() -> dict[int, int]:
        begin = _wanted(reading, given, table)
        if not begin.snapshot and begin.version <= table.newest.version:
            before = table.log.about(begin.version)
            table.declared.check(before.metadata, before.version)
        return {begin.version: int(begin.snapshot)}

    found = None if reading.starts is None else reading.starts.of(reading.stream.name.lower(), find)
    ((version, is_snapshot),) = (find() if found is None else found).items()
    return Begin(version, bool(is_snapshot))


def _wanted(reading: Reading, given: DeltaOptions, table: _Table) -> Begin:
    seek, newest = reading.seek, table.newest.version
    if seek is None and given.starting_timestamp is not None:
        seek = resolve(reading.spark, given.starting_timestamp)
    elif seek is None and given.starting_version is not None:
        if given.starting_version > newest + 1:
            raise ConnectorError(
                f"the Delta table {table.log.shown} has no version {given.starting_version}: its newest is {newest}",
                hint=f"starting_version is {newest + 1} at most, for what comes next",
            )
        return Begin(given.starting_version, snapshot=False)
    to = (given.starting or EARLIEST) if seek is None else seek.to
    if to == EARLIEST:
        return Begin(newest, snapshot=True)
    if to == LATEST or seek is None or seek.since is None:
        return Begin(newest + 1, snapshot=False)
    return Begin(table.log.since(-(-seek.since // 1000), newest), snapshot=False)
