"""External tables by connector: the options of CREATE TABLE … WITH, and the source of a table's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from sqlglot import exp

from watersmeet.catalog.streams import FRAME, StreamDef
from watersmeet.errors import ConfigError, did_you_mean
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.lookup.source import LookupSource
from watersmeet.lookup.table_options import (
    DeltaOptions,
    DuckDbOptions,
    FilesTableOptions,
    JdbcOptions,
    LookupOptions,
    parse_table_options,
)

_Options = TypeVar("_Options", bound=LookupOptions)

#: Returns the source of a table for the columns that a query needs.
OpenTable = Callable[[StreamDef, Sequence[str]], LookupSource]


@dataclass(frozen=True, slots=True)
class _Connector(Generic[_Options]):
    model: type[_Options]
    open: Callable[[_Options, pa.Schema, str], LookupSource]


def _jdbc(options: JdbcOptions, schema: pa.Schema, name: str) -> LookupSource:
    from watersmeet.lookup.connections import Address, require_packages
    from watersmeet.lookup.jdbc import JdbcSource

    require_packages(options.url)
    address = Address(options.url, options.user, options.password, options.lookup_timeout)
    return JdbcSource(address, options.table, schema, name)


def _files(options: FilesTableOptions, schema: pa.Schema, name: str) -> LookupSource:
    from watersmeet.lookup.file_tables import FilesSource

    return FilesSource(options.path, schema, known_as=name)


def _delta(options: DeltaOptions, schema: pa.Schema, name: str) -> LookupSource:
    from watersmeet.lookup.file_tables import FilesSource, require_delta

    require_delta()
    return FilesSource(options.path, schema, delta=True, known_as=name)


def _duckdb(options: DuckDbOptions, schema: pa.Schema, name: str) -> LookupSource:
    from watersmeet.lookup.duckdb_tables import DuckDbSource

    return DuckDbSource(options.path, options.table, schema, name)


_CONNECTORS: Mapping[str, _Connector[Any]] = {
    "jdbc": _Connector(JdbcOptions, _jdbc),
    "files": _Connector(FilesTableOptions, _files),
    "delta": _Connector(DeltaOptions, _delta),
    "duckdb": _Connector(DuckDbOptions, _duckdb),
}


def table_options(table: StreamDef) -> LookupOptions:
    """Return the checked options of a table; raises ``ConfigError`` for missing, unknown or wrong ones."""
    model = LookupOptions if table.connector == FRAME else _connector(table).model
    found: LookupOptions = parse_table_options(model, table.connector, table.options)
    return found


def open_table(table: StreamDef, columns: Sequence[str]) -> LookupSource:
    """Return the source of a table for some of its columns. This contacts no other system."""
    return _connector(table).open(table_options(table), table_schema(table, columns), table.name)


def table_schema(table: StreamDef, columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow types of some of a table's columns."""
    fields = []
    for name in columns:
        column = table.column(name)
        assert column is not None  # the binder has resolved it
        fields.append(pa.field(column.name, arrow_type(exp.DataType.build(column.type, dialect="spark"))))
    return pa.schema(fields)


def _connector(table: StreamDef) -> _Connector[Any]:
    if table.connector not in _CONNECTORS:
        raise ConfigError(
            f"there is no connector {table.connector!r} for tables",
            hint=did_you_mean(table.connector, _CONNECTORS),
            option="connector",
        )
    return _CONNECTORS[table.connector]
