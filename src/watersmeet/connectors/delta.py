"""A Delta table as a sink: merged by the stream's primary key, or appended to where it has none.

A batch is one commit, with its number under the query's name (an application's transaction): a batch that has been
committed is known, and passed over.  The table is made where it is not there.  The driver writes.
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
from watersmeet.connectors.upsert import net_changes, require_columns_of_table
from watersmeet.errors import ConnectorError, WatersmeetError, did_you_mean
from watersmeet.kernels.api import quote
from watersmeet.lookup.files import require_delta
from watersmeet.lookup.tables import table_schema
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.secrets import hide, resolve

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_OLD, _NEW = "old", "new"


class DeltaSinkOptions(BaseModel):
    """The WITH options of a Delta table that takes results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(min_length=1)]


def options_of(options: Mapping[str, str]) -> DeltaSinkOptions:
    """The options of a WITH clause, checked; ``ConfigError`` for what is missing, unknown or wrong."""
    return parse_options(DeltaSinkOptions, "delta", options)


def check_options(stream: StreamDef) -> None:
    """Raise ``ConfigError`` for options that are wrong."""
    options_of(stream.options)
    require_columns_of_table(stream)


def check_table(stream: StreamDef) -> None:
    """Raise ``ConnectorError`` where the table is there and has other columns or types than those declared."""
    require_delta()
    from deltalake import DeltaTable

    path = options_of(stream.options).path
    with _talking(f"the Delta table {path} cannot be written to"):
        if DeltaTable.is_deltatable(resolve(path)):
            declared = table_schema(stream, [column.name for column in stream.columns])
            _require_columns(DeltaTable(resolve(path)), declared, path)


def write_batch(rows: pa.Table, batch_id: int, key: str, stream: StreamDef) -> None:
    """Bring the table to where it is after a batch, unless ``key`` has been committed; its query's name is before it.

    Raises ``ConnectorError`` where the table cannot be written to, and for several rows of a primary key.
    """
    path = options_of(stream.options).path
    if stream.changes:
        rows = net_changes(rows, stream)
    with _talking(f"batch {batch_id} could not be written to the Delta table {path}"):
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

    if not DeltaTable.is_deltatable(path):
        DeltaTable.create(path, schema, mode="ignore")
    return DeltaTable(path)


def _commit(query: str, batch_id: int) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(query, batch_id)])


def _append(table: DeltaTable, rows: pa.Table, commit: CommitProperties) -> None:
    from deltalake import write_deltalake

    write_deltalake(table, rows, mode="append", commit_properties=commit)


def _merge(table: DeltaTable, changes: pa.Table, stream: StreamDef, commit: CommitProperties) -> None:
    """One MERGE: files without any of the keys, by their statistics, are left alone; these know no NaN."""
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
def _talking(what: str) -> Iterator[None]:
    """What goes wrong with the table, as one sentence."""
    try:
        yield
    except WatersmeetError:
        raise
    except Exception as error:  # noqa: BLE001 - the package raises bare Exceptions too
        raise ConnectorError(f"{what}: {hide(_said(error))}") from None


def _said(error: Exception) -> str:
    """The first line, and the innermost of the causes that may stand below it."""
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    causes = [line.rpartition("↳")[2] for line in more if "↳" in line]
    return ": ".join(re.sub(r"\x1b\[\w*m", "", line).strip() for line in (first, *causes[-1:]))
