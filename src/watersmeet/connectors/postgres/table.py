"""A table of PostgreSQL whose changes are read: what it must be like, and how its columns may be declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.columns import same_name
from watersmeet.connectors.postgres.server import Server
from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.expressions.type_names import spark_type

_TABLE = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::bigint, format_type(a.atttypid, a.atttypmod), b.typname, e.typname,
  a.attgenerated <> '', a.attnum::int
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
  LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT array_agg(a.attname::text) FROM pg_index i
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_IDENTITIES = """
SELECT c.oid::regclass::text, c.relreplident::text, (
  SELECT array_agg(a.attname::text) FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
  WHERE i.indrelid = c.oid AND ((c.relreplident = 'd' AND i.indisprimary AND i.indimmediate)
    OR (c.relreplident = 'i' AND i.indisreplident)))
FROM pg_class c WHERE c.oid = %s AND c.relkind = 'r'
  OR c.oid IN (SELECT relid FROM pg_partition_tree(%s) WHERE isleaf AND relid <> %s)
"""
#: The names of PostgreSQL's types, by what may be declared instead of STRING.
_FAMILIES: tuple[tuple[Any, frozenset[str]], ...] = (
    (pa.types.is_boolean, frozenset({"bool"})),
    (pa.types.is_integer, frozenset({"int2", "int4", "int8", "oid", "numeric"})),
    (pa.types.is_floating, frozenset({"float4", "float8", "int2", "int4", "int8", "numeric"})),
    (pa.types.is_decimal, frozenset({"numeric", "int2", "int4", "int8"})),
    (pa.types.is_binary, frozenset({"bytea"})),
    (pa.types.is_date, frozenset({"date"})),
)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its type's id, its type in words, the type's name (of a domain, what it is based on), its elements'.

    One that is dropped and made anew has another ``number``.
    """

    name: str
    type: int
    words: str
    base: str
    element: str | None
    generated: bool
    number: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its id and name, whether it is partitioned, and the declared columns by their names in the stream."""

    id: int
    schema: str
    name: str
    partitioned: bool
    columns: Mapping[str, TableColumn]

    @property
    def full_name(self) -> str:
        """The name with its schema."""
        return f"{self.schema}.{self.name}"

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of the declared columns."""
        return {name: column.number for name, column in self.columns.items()}


@dataclass(frozen=True, slots=True)
class Declared:
    """What a stream declares: its columns with their types, its key, and whether it needs the rows before a change."""

    stream: str
    schema: pa.Schema
    key: tuple[str, ...]
    needs_whole_rows: bool


def described(server: Server, name: str, declared: Declared) -> Table:
    """Return the table of that name; raises ``ConnectorError`` where it is not as it must be."""
    what = f"table {name} cannot be read"
    rows = server.rows(what, _TABLE, _quoted(name)) or server.rows(what, _TABLE, _quoted(name.lower()))
    if not rows:
        raise ConnectorError(
            f"the database has no table {name} for {declared.stream} to read",
            hint="correct the option table (schema.table), or grant the user access to its schema",
        )
    ((oid, schema, own, kind, persistence),) = rows
    if kind not in ("r", "p") or persistence != "p":
        raise ConnectorError(
            f"{name} is no table whose changes the server logs",
            detail="views, foreign, temporary and unlogged tables have no changes in the log",
            hint="name an ordinary or a partitioned table",
        )
    found = {each.name: each for each in (TableColumn(*row) for row in server.rows(what, _COLUMNS, oid))}
    columns = _declared_columns(name, found, declared)
    key = {columns[each].name for each in declared.key}
    if not any(set(names) == key for (names,) in server.rows(what, _KEYS, oid)):
        shown = ", ".join(declared.key)
        raise ConnectorError(
            f"table {name} has no primary key or unique index over ({shown}), the PRIMARY KEY of {declared.stream}",
            detail="a deferrable or partial one does not count: its keys are not unique at every moment",
            hint=f"declare the key that the table has, or ALTER TABLE {name} ADD PRIMARY KEY ({shown})",
        )
    _check_identities(server.rows(what, _IDENTITIES, oid, oid, oid), key, declared)
    return Table(oid, schema, own, kind == "p", columns)


def _quoted(name: str) -> str:
    """The name as it is written; PostgreSQL takes one without quotes in lower case."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _declared_columns(name: str, found: Mapping[str, TableColumn], declared: Declared) -> dict[str, TableColumn]:
    columns = {}
    for field in declared.schema:
        actual = same_name(field.name, {**found})
        if actual is None:
            raise ConnectorError(
                f"table {name} has no column {field.name}, which {declared.stream} declares",
                hint=did_you_mean(field.name, found),
            )
        column = found[actual]
        if column.generated:
            raise ConnectorError(
                f"column {actual} of table {name} is generated: its values are not in the server's log",
                hint=f"leave it out of {declared.stream}, and compute it in the query",
            )
        if not fits(field.type, column.base, column.element):
            raise ConnectorError(
                f"column {actual} of table {name} is {column.words}: it cannot be declared as {spark_type(field.type)}",
                hint=f"declare it as {suggested(column)}",
            )
        columns[field.name] = column
    return columns


def fits(declared: pa.DataType, base: str, element: str | None) -> bool:
    """Return whether a column of a type may be declared so; ``element`` is set if it is an array."""
    if pa.types.is_string(declared):
        return True
    if pa.types.is_list(declared):
        inner = declared.value_type
        return element is not None and (
            fits(inner, base, element) if pa.types.is_list(inner) else fits(inner, element, None)
        )
    if element is not None:
        return False
    if pa.types.is_timestamp(declared):
        return base == ("timestamp" if declared.tz is None else "timestamptz")
    return any(belongs(declared) and base in names for belongs, names in _FAMILIES)


def suggested(column: TableColumn) -> str:
    """Return the type of Spark that a column is best declared as."""
    if column.element is not None:
        return f"ARRAY<{_SUGGESTED.get(column.element, 'STRING')}>"
    if column.base == "numeric":
        return column.words.upper().replace("NUMERIC", "DECIMAL") if "(" in column.words else "DECIMAL(38, 9) or STRING"
    return _SUGGESTED.get(column.base, "STRING")


_SUGGESTED = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "oid": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "bytea": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
}


def _check_identities(found: Sequence[tuple[str, str, list[str] | None]], key: set[str], declared: Declared) -> None:
    """Raise where the changes of a table, or of its partitions, lack what the stream needs."""
    for table, identity, columns in found:
        if identity == "f":
            continue
        if declared.needs_whole_rows:
            raise ConnectorError(
                f"table {table} does not log the rows before a change, which mode = 'changelog_kv' needs",
                hint=f"ALTER TABLE {table} REPLICA IDENTITY FULL; or declare mode = 'versioned_kv'",
            )
        if not key <= set(columns or ()):
            raise ConnectorError(
                f"table {table} does not log the key ({', '.join(sorted(key))}) of rows that are updated or deleted",
                detail=f"its replica identity has {', '.join(columns or ()) or 'no columns'}",
                hint=f"ALTER TABLE {table} REPLICA IDENTITY FULL, or USING INDEX one over these columns; "
                f"or declare the columns of the identity as the PRIMARY KEY of {declared.stream}",
            )
