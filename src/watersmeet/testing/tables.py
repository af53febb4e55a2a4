"""External tables in tests: they have the rows of the case, whatever their connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.catalog.streams import StreamDef
from watersmeet.lookup.source import LookupSource
from watersmeet.lookup.tables import table_schema
from watersmeet.testing.cells import Row


def table_rows(table: StreamDef, rows: Sequence[Row] = ()) -> pa.Table:
    """Return rows of a table, whose values are in the order of its declared columns."""
    schema = table_schema(table, [column.name for column in table.columns])
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.table(columns, schema=schema)


@dataclass(frozen=True, slots=True, eq=False)
class HeldTable:
    """A table in the memory of this process; ``held`` has its rows by name, and may change while a query runs."""

    name: str
    schema: pa.Schema
    held: Mapping[str, pa.Table]

    @property
    def max_keys(self) -> int | None:
        """None: a fetch may ask for any number of keys."""
        return None

    def check(self) -> None:
        """Do nothing: the table is always valid."""

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Return all rows that the table has now."""
        rows = self.held.get(self.name)
        return self.schema.empty_table() if rows is None else rows.select(self.schema.names)


class TableFiles:
    """Tables as Parquet files, one for each table, for queries that run in other processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, table: StreamDef, columns: Sequence[str]) -> LookupSource:
        """Return the lookup source of a table."""
        from watersmeet.lookup.file_tables import FilesSource

        if not self._path(table).exists():
            self.fill(table, ())
        return FilesSource(str(self._path(table)), table_schema(table, columns))

    def fill(self, table: StreamDef, rows: Sequence[Row]) -> None:
        """Replace the rows of a table."""
        self._folder.mkdir(parents=True, exist_ok=True)
        written = self._path(table).with_suffix(".tmp")
        pq.write_table(table_rows(table, rows), written)
        written.replace(self._path(table))

    def _path(self, table: StreamDef) -> Path:
        return self._folder / f"{table.name.lower()}.parquet"
