"""The ``delta`` connector: a Delta table as a sink.

A batch is one commit that records the batch's number under the query's name (an application transaction), so a batch
that was committed before is skipped. The driver writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.connector import SinkConnector, WriteBatch, Writing
from watersmeet.connectors.net_changes import collected, net_changes, require_columns_of_table
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.errors import ConnectorError, SinkOutageError, WatersmeetError, did_you_mean
from watersmeet.filesystems import is_unreachable
from watersmeet.kernels.api import quote
from watersmeet.lookup.file_tables import require_delta
from watersmeet.lookup.tables import table_schema
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.secrets import hide, masked_value, resolve

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

_OLD, _NEW = "old", "new"
_SHORT_RETRIES = {"max_retries": "3", "retry_timeout": "20s"}
#: Another writer, which may be an attempt at the same batch whose answer was lost, has committed first.
_OVERTAKEN = re.compile("concurrent|already exists|Failed to commit transaction")


class DeltaSinkOptions(BaseModel):
    """The WITH options of a Delta table that results are written to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(min_length=1)]


class DeltaConnector(SinkConnector):
    """A sink that writes to the Delta table at ``path`` and creates it if needed, exactly once.

    With a PRIMARY KEY a batch is one MERGE of upserts and deletes; without one its rows are appended.
    """

    name = "delta"
    model = DeltaSinkOptions
    changelogs = (Changelogs.BY_KEY,)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options, and for a column ``_tp_delta``."""
        super().check(stream)
        require_columns_of_table(stream)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what commits a batch; raises ``ConnectorError`` where an existing table does not fit the stream."""
        check_table(writing.stream)

        def write(frame: DataFrame, batch_id: int, key: str) -> None:
            rows = collected(frame)
            writing.tried(lambda: write_batch(rows, batch_id, key, writing.stream))

        return write


def _path_of(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the table's path as it is written, and as messages name it."""
    path = parse_options(DeltaSinkOptions, DeltaConnector.name, options).path
    return path, masked_value("path", path)


def check_table(stream: StreamDef) -> None:
    """Raise ``ConnectorError`` where the table exists with other columns or types than the declared ones."""
    require_delta()
    from deltalake import DeltaTable

    path, shown = _path_of(stream.options)
    with _reporting(f"the Delta table {shown} cannot be written to"):
        found = resolve(path)
        if DeltaTable.is_deltatable(found, _store_options(found)):
            declared = table_schema(stream, [column.name for column in stream.columns])
            _require_columns(DeltaTable(found, storage_options=_store_options(found)), declared, shown)


def write_batch(rows: pa.Table, batch_id: int, key: str, stream: StreamDef) -> None:
    """Write a batch to the table unless it has been committed before; ``key`` is the query's name and ``batch_id``.

    Raises ``SinkOutageError`` where the table's store does not answer, and ``ConnectorError`` where the table cannot be
    written to, and for several rows of a primary key.
    """
    path, shown = _path_of(stream.options)
    if stream.changes:
        rows = net_changes(rows, stream)
    with _reporting(f"batch {batch_id} could not be written to the Delta table {shown}"):
        table = _opened(resolve(path), rows.drop_columns(TP_DELTA).schema if stream.changes else rows.schema)
        query = key.removesuffix(f"-{batch_id:012d}")
        committed = table.transaction_version(query)
        if not rows.num_rows or (committed is not None and committed >= batch_id):
            return
        if stream.changes:
            _merge(table, rows, stream, _commit(query, batch_id))
        else:
            _append(table, rows, _commit(query, batch_id))


def _opened(path: str, schema: pa.Schema) -> DeltaTable:
    from deltalake import DeltaTable

    options = _store_options(path)
    if not DeltaTable.is_deltatable(path, options):
        DeltaTable.create(path, schema, mode="ignore", storage_options=options)
    return DeltaTable(path, storage_options=options)


def _store_options(path: str) -> dict[str, str] | None:
    """Return options by which a request to a store is repeated for a short time only: batches are tried again."""
    return dict(_SHORT_RETRIES) if "://" in path and not path.startswith("file:") else None


def _commit(query: str, batch_id: int) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(query, batch_id)])


def _append(table: DeltaTable, rows: pa.Table, commit: CommitProperties) -> None:
    from deltalake import write_deltalake

    write_deltalake(table, rows, mode="append", commit_properties=commit)


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


@contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Raise every failure of the table as a ``ConnectorError`` of one sentence, one that may pass as an outage."""
    try:
        yield
    except WatersmeetError:
        raise
    except Exception as error:  # noqa: BLE001 - the package raises bare Exceptions too
        from deltalake.exceptions import CommitFailedError

        is_overtaken = isinstance(error, CommitFailedError) and _OVERTAKEN.search(str(error)) is not None
        kind = SinkOutageError if is_overtaken or is_unreachable(str(error)) else ConnectorError
        raise kind(
            f"{what}: {hide(_first_line(error))}",
            hint="fix the cause and run the query again: it writes the batch anew",
        ) from None


def _first_line(error: Exception) -> str:
    """Return the first line, and the innermost cause if causes follow it."""
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line.rpartition("↳")[2] for line in more if "↳" in line]
    return ": ".join(re.sub(r"\x1b\[\w*m", "", line).strip() for line in (first, *causes[-1:]))
