"""The ``delta`` connector: a Delta table as a source (source.py) and as a sink.

A batch is one commit that records the batch's number under the query's name (an application transaction), so a batch
that was committed before is skipped. The tasks write files, and the driver commits them; a MERGE is the driver's alone,
since deltalake computes it in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.connector import Reading, SinkConnector, StoredConnector, WriteBatch, Writing
from watersmeet.connectors.delta.failures import reporting
from watersmeet.connectors.delta.files import DeltaFiles, commit_files, files_for, is_local, store_options
from watersmeet.connectors.delta.options import NAME, DeltaOptions, options_of
from watersmeet.connectors.delta.source import open_source, open_stored
from watersmeet.connectors.net_changes import collected, net_changes, require_columns_of_table
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.connectors.task_writes import Handed, driver_schema, run_without_writing, write_in_tasks
from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.kernels.api import quote
from watersmeet.lookup.file_tables import require_delta
from watersmeet.lookup.tables import table_schema
from watersmeet.runtime.shared_folders import SHARED_OR_STORE, require_shared
from watersmeet.runtime.source_frames import Source
from watersmeet.settings.secrets import masked_value, resolve

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_OLD, _NEW = "old", "new"


class DeltaConnector(StoredConnector, SinkConnector):
    """The Delta table at ``path``, as a source and as a sink that creates it if needed and writes exactly once.

    As a source, it reads the rows that the table has and then those that each later version adds, at most
    ``max_files_per_trigger`` files per micro-batch. A query without a checkpoint begins at ``starting`` (``earliest``,
    the default, or ``latest``), at ``starting_version`` or at ``starting_timestamp``. A version that changes rows stops
    it, or is left out with ``skip_change_commits``. With a PRIMARY KEY it reads the table's change data feed. As a
    sink, with a PRIMARY KEY a batch is one MERGE of upserts and deletes by the driver; without one its rows are
    appended, in files that the tasks write.
    """

    name = NAME
    model = DeltaOptions
    changelogs = (Changelogs.BY_KEY,)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options, and for a column ``_tp_delta``."""
        options_of(stream.options)
        require_columns_of_table(stream)

    def limits_batches(self, stream: StreamDef) -> bool:
        """Return whether the stream has the option ``max_files_per_trigger``."""
        return options_of(stream.options).max_files_per_trigger is not None

    def open_source(self, reading: Reading) -> Source:
        """Return the table as a source; raises ``ConnectorError`` where it does not exist or fit the stream."""
        return open_source(reading)

    def open_stored(self, reading: Reading) -> DataFrame:
        """Return the rows that the table has now; raises as ``open_source`` does."""
        return open_stored(reading)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what commits a batch; raises ``ConnectorError`` where an existing table does not fit the stream."""
        check_table(writing.stream)
        return _merging(writing) if writing.stream.changes else _appending(writing)

    def reach(self, spark: SparkSession, stream: StreamDef) -> None:
        """Raise ``SinkOutageError`` where the table's store does not answer; else as ``open_sink`` does."""
        check_table(stream)


def _merging(writing: Writing) -> WriteBatch:
    def write(frame: DataFrame, batch_id: int, key: str) -> None:
        rows = collected(frame)
        writing.tried(lambda: write_batch(rows, batch_id, key, writing.stream))

    return write


def _appending(writing: Writing) -> WriteBatch:
    stream = writing.stream

    def write(frame: DataFrame, batch_id: int, key: str) -> None:
        batch = DeltaBatch(stream, batch_id, key)
        opened: list[DeltaFiles | None] = []
        writing.tried(lambda: opened.append(batch.open(driver_schema(frame))))
        files = opened[-1]
        if files is None:
            return run_without_writing(frame)
        if is_local(files.path):
            require_shared(frame.sparkSession, files.path, "the Delta table's folder", SHARED_OR_STORE)
        handed = write_in_tasks(frame, files, lambda: check_table(stream))
        return writing.tried(lambda: batch.commit(handed))

    return write


def _path_of(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the table's path as it is written, and as messages name it."""
    path = options_of(options).path
    return path, masked_value("path", path)


def check_table(stream: StreamDef) -> None:
    """Raise ``ConnectorError`` where the table exists with other columns or types than the declared ones."""
    require_delta()
    from deltalake import DeltaTable

    path, shown = _path_of(stream.options)
    with reporting(f"the Delta table {shown} cannot be written to"):
        found = resolve(path)
        if DeltaTable.is_deltatable(found, store_options(found)):
            declared = table_schema(stream, [column.name for column in stream.columns])
            _require_columns(DeltaTable(found, storage_options=store_options(found)), declared, shown)


def write_batch(rows: pa.Table, batch_id: int, key: str, stream: StreamDef) -> None:
    """Merge a batch into the table unless it has been committed before; ``key`` is the query's name and ``batch_id``.

    Raises ``SinkOutageError`` where the table's store does not answer, and ``ConnectorError`` where the table cannot be
    written to, and for several rows of a primary key.
    """
    path, shown = _path_of(stream.options)
    rows = net_changes(rows, stream)
    with reporting(_not_written(batch_id, shown)):
        table = _opened(resolve(path), rows.drop_columns(TP_DELTA).schema)
        query = _query_of(key, batch_id)
        if rows.num_rows and not _has(table, query, batch_id):
            _merge(table, rows, stream, _commit(query, batch_id))


class DeltaBatch:
    """A batch that is appended to a table.

    ``key`` is the query's name and the batch's number. Both methods raise ``SinkOutageError`` where the table's store
    does not answer, and ``ConnectorError`` where the table cannot be written to.
    """

    def __init__(self, stream: StreamDef, batch_id: int, key: str) -> None:
        path, shown = _path_of(stream.options)
        self._path, self._what = resolve(path), _not_written(batch_id, shown)
        self._batch_id, self._query = batch_id, _query_of(key, batch_id)

    def open(self, schema: pa.Schema) -> DeltaFiles | None:
        """Make the table if there is none; return what writes files for it, None if the batch has been committed."""
        with reporting(self._what):
            table = _opened(self._path, schema)
            return None if _has(table, self._query, self._batch_id) else self._files(table)

    def commit(self, handed: Handed) -> None:
        """Commit what tasks handed over, unless that has been done: the answer to it may have been lost."""
        if not handed.rows.num_rows and not handed.notes:
            return
        with reporting(self._what):
            table = _opened(self._path, handed.rows.schema)
            if _has(table, self._query, self._batch_id):
                return
            few = [self._files(table).write(handed.rows.to_reader())] if handed.rows.num_rows else []
            commit_files(table, [*few, *handed.notes], _commit(self._query, self._batch_id))

    def _files(self, table: DeltaTable) -> DeltaFiles:
        return files_for(table, self._path, self._what)


def _not_written(batch_id: int, shown: str) -> str:
    return f"batch {batch_id} could not be written to the Delta table {shown}"


def _query_of(key: str, batch_id: int) -> str:
    return key.removesuffix(f"-{batch_id:012d}")


def _has(table: DeltaTable, query: str, batch_id: int) -> bool:
    """Return whether a batch has been committed, or one after it."""
    committed = table.transaction_version(query)
    return committed is not None and committed >= batch_id


def _opened(path: str, schema: pa.Schema) -> DeltaTable:
    from deltalake import DeltaTable

    options = store_options(path)
    if not DeltaTable.is_deltatable(path, options):
        DeltaTable.create(path, schema, mode="ignore", storage_options=options)
    return DeltaTable(path, storage_options=options)


def _commit(query: str, batch_id: int) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(query, batch_id)])


def _merge(table: DeltaTable, changes: pa.Table, stream: StreamDef, commit: CommitProperties) -> None:
    """Run one MERGE. Files whose statistics exclude all keys are skipped; statistics do not cover NaN."""
    has_fraction = any(pa.types.is_floating(changes.schema.field(name).type) for name in stream.primary_key)
    same = " AND ".join(f"{_OLD}.{quote(name)} = {_NEW}.{quote(name)}" for name in stream.primary_key)
    values = {quote(column.name): f"{_NEW}.{quote(column.name)}" for column in stream.columns}
    delta = f"{_NEW}.{quote(TP_DELTA)}"
    (
        table.merge(
            changes,
            same,
            source_alias=_NEW,
            target_alias=_OLD,
            streamed_exec=has_fraction,
            commit_properties=commit,
        )
        .when_matched_delete(f"{delta} < 0")
        .when_matched_update(values)
        .when_not_matched_insert(values, f"{delta} > 0")
        .execute()
    )


def _require_columns(table: DeltaTable, declared: pa.Schema, path: str) -> None:
    found = pa.schema(table.schema().to_arrow())
    for field in declared:
        if field.name not in found.names:
            raise ConnectorError(
                f"the Delta table {path} has no column {field.name}", hint=did_you_mean(field.name, found.names)
            )
        if found.field(field.name).type != field.type:
            raise ConnectorError(
                f"column {field.name} of the Delta table {path} is {found.field(field.name).type}, not {field.type}",
                hint="declare the type that the table has; the query's values are cast to it",
            )
