"""Rows on their way to a table of PostgreSQL: tasks copy them into tables of their own, the driver merges these.

A task's **staging table** is unlogged and named by query, batch and attempt; the attempt's transaction makes it whole
or not at all. The driver's transaction takes those of the attempts that Spark counts, and drops them, with all that
other attempts and other runs of the query have left.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.jdbc.copy import copy_rows
from watersmeet.connectors.jdbc.failures import in_time, in_two_attempts
from watersmeet.connectors.jdbc.table import key_of
from watersmeet.errors import ConnectorError
from watersmeet.lookup.connections import Address, engine_of
from watersmeet.lookup.databases.postgresql import PostgreSql

if TYPE_CHECKING:
    import sqlalchemy as sa

#: A statement, and the pages of a staging table to which it is to be applied.
Merge: TypeAlias = "tuple[sa.Executable, dict[str, str]]"
_log = logging.getLogger(__name__)
_CHANGE = "change"
_CHUNK = 20_000
"""About so many rows are copied or merged by one statement, which has to end in time."""


class StagedRowsLostError(Exception):
    """A staging table is gone, or empty as unlogged tables are after a crash of the server: compute the batch anew."""


@dataclass(frozen=True, slots=True)
class Place:
    """The schema of staging tables, and the types of their columns as the server writes them."""

    schema: str
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """A staging table, and how many rows of each kind it has."""

    name: str
    deletes: int
    upserts: int


def find_place(table: sa.Table, asked: str | None, connection: sa.Connection) -> Place | None:
    """Return where rows for a table are staged: in its own schema, or in the one that is asked for.

    None, with a warning, if the user may not create tables in the table's schema; raises ``ConnectorError`` for the
    same in one that is asked for.
    """
    import sqlalchemy as sa

    name = _regclass(table.schema, table.name)
    if asked is None:
        where, values = "c.oid = CAST(:name AS regclass)", {"name": name}
    else:
        where, values = "n.nspname = :name", {"name": asked}
    found = connection.execute(
        sa.text(
            "SELECT n.nspname, has_schema_privilege(n.oid, 'CREATE') FROM pg_catalog.pg_namespace n "
            f"LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid WHERE {where} LIMIT 1"
        ),
        values,
    ).first()
    if found is None:
        raise ConnectorError(
            f"the database has no schema {asked}, in which rows for table {table.name} are to be staged",
            hint="correct the option staging, or create the schema",
        )
    schema, may_create = found
    if not may_create:
        hint = f"GRANT CREATE ON SCHEMA {schema}, or name another schema by the option staging"
        if asked is not None:
            raise ConnectorError(f"the user may not create tables in schema {schema} (option staging)", hint=hint)
        _log.warning(
            "batches for table %s pass through the driver, however large: its user may not create tables in schema %s "
            "(%s; staging = 'none' says that it is meant so)",
            *(table.name, schema, hint),
        )
        return None
    kinds = connection.execute(
        sa.text(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute "
            "WHERE attrelid = CAST(:name AS regclass) AND attnum > 0 AND NOT attisdropped"
        ),
        {"name": name},
    )
    known = {str(column): str(kind) for column, kind in kinds}
    return Place(schema, tuple(known[column.name] for column in table.columns))


def prefix_of(query: str) -> str:
    """Return how the names of a query's staging tables begin."""
    return f"watersmeet_{hashlib.sha256(query.encode()).hexdigest()[:16]}_"


@dataclass(frozen=True, slots=True)
class StageWriter:
    """Copies a task's net changes into a staging table; ``what`` is the beginning of an error's text."""

    stream: StreamDef
    address: Address
    place: Place
    names: str
    what: str

    def write(self, rows: pa.RecordBatchReader) -> str:
        """Return the staging table as JSON.

        Raises ``SinkOutageError`` where the database is down or hangs, and ``ConnectorError`` where it refuses.
        """
        changes = rows.read_all()
        staged = in_two_attempts(lambda: self._stage(changes), self.what, self.address)
        return json.dumps(asdict(staged))

    def _stage(self, changes: pa.Table) -> Staged:
        import sqlalchemy as sa

        deletes = int(pc.sum(pc.less(changes[TP_DELTA], 0)).as_py() or 0)
        staged = Staged(f"{self.names}{uuid4().hex[:12]}", deletes, changes.num_rows - deletes)
        table = stage_table(self.place, staged.name)
        with engine_of(self.address).connect() as connection, connection.begin() as transaction:
            with in_time(connection, self.address):
                connection.execute(sa.schema.CreateTable(table))
            for start in range(0, changes.num_rows, _CHUNK):
                with in_time(connection, self.address):
                    copy_rows(_columns(changes.slice(start, _CHUNK), self.stream), table, connection)
            with in_time(connection, self.address):
                transaction.commit()
        return staged


def staged_of(note: str) -> Staged:
    """Return the staging table that a task has noted."""
    return Staged(**json.loads(note))


def merges(
    target: sa.Table,
    stream: StreamDef,
    place: Place,
    staged: Sequence[Staged],
    connection: sa.Connection,
    address: Address,
) -> tuple[list[Merge], list[Merge]]:
    """Return the deletes and the upserts that merge staging tables; raises ``StagedRowsLostError``."""
    import sqlalchemy as sa

    deletes: list[Merge] = []
    upserts: list[Merge] = []
    page = sa.text("staged.ctid >= CAST(:first AS tid) AND staged.ctid < CAST(:last AS tid)")
    for each in staged:
        with in_time(connection, address):
            parts = _parts(place, each, connection)
        table = stage_table(place, each.name).alias("staged")
        key = key_of(table, stream)
        if each.deletes:
            same = [old == new for old, new in zip(key_of(target, stream), key, strict=True)]
            statement = sa.delete(target).where(*same, table.c[_CHANGE] < 0, page)
            deletes += [(statement, part) for part in parts]
        if each.upserts:
            columns = [column for column in table.c if column.key != _CHANGE]
            # a statement takes each key once; and in order, as others may lock the same rows
            once = sa.text(f"DISTINCT ON ({', '.join(f'staged.{each.key}' for each in key)})")
            rows = sa.select(*columns).prefix_with(once).where(table.c[_CHANGE] > 0, page).order_by(*key)
            insert = PostgreSql().upsert(target, key_of(target, stream)).from_select(list(target.c), rows)
            upserts += [(insert, part) for part in parts]
    return deletes, upserts


def drop_staged(place: Place, prefix: str, connection: sa.Connection, address: Address) -> None:
    """Drop all staging tables of a query that can be seen."""
    import sqlalchemy as sa

    named = sa.text(
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = :schema AND starts_with(c.relname, :prefix) AND c.relkind = 'r' AND c.relpersistence = 'u'"
    )
    with in_time(connection, address):
        found = connection.execute(named, {"schema": place.schema, "prefix": prefix}).scalars().all()
    for name in found:
        with in_time(connection, address):
            connection.execute(sa.schema.DropTable(stage_table(place, name), if_exists=True))


def stage_table(place: Place, name: str) -> sa.Table:
    """Return a staging table: a column ``c0``, ``c1``, … for each of the stream's, and one for the delta."""
    import sqlalchemy as sa

    class Named(sa.types.UserDefinedType[Any]):
        cache_ok = True

        def __init__(self, text: str) -> None:
            self.text = text

        def get_col_spec(self, **_: object) -> str:
            return self.text.replace("%", "%%")

    columns = [sa.Column(f"c{number}", Named(kind)) for number, kind in enumerate(place.types)]
    change = sa.Column(_CHANGE, sa.SmallInteger)
    return sa.Table(name, sa.MetaData(), *columns, change, schema=place.schema, prefixes=["UNLOGGED"], quote=True)


def _columns(changes: pa.Table, stream: StreamDef) -> pa.Table:
    """Return rows as a staging table has them. Of a row that is deleted only the key counts."""
    is_gone = pc.less(changes[TP_DELTA], 0)
    columns = [
        changes[column.name]
        if column.name in stream.primary_key
        else pc.if_else(is_gone, pa.scalar(None, changes[column.name].type), changes[column.name])
        for column in stream.columns
    ]
    return pa.table([*columns, changes[TP_DELTA]], names=[f"c{number}" for number in range(len(columns) + 1)])


def _parts(place: Place, staged: Staged, connection: sa.Connection) -> list[dict[str, str]]:
    """Return the pages of a staging table in parts of about ``_CHUNK`` rows, as ranges of places in it."""
    import sqlalchemy as sa

    named = {"name": _regclass(place.schema, staged.name)}
    if connection.execute(sa.text("SELECT to_regclass(:name) IS NULL"), named).scalar_one():
        raise StagedRowsLostError
    table = stage_table(place, staged.name)
    rows = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    if rows != staged.deletes + staged.upserts:
        raise StagedRowsLostError
    size = "SELECT pg_relation_size(CAST(:name AS regclass)) / CAST(current_setting('block_size') AS bigint)"
    pages = connection.execute(sa.text(size), named).scalar_one()
    step = max(1, pages * _CHUNK // rows)
    return [{"first": f"({start},0)", "last": f"({start + step},0)"} for start in range(0, pages, step)]


def _regclass(schema: str | None, name: str) -> str:
    from psycopg import sql

    return sql.Identifier(*(part for part in (schema, name) if part is not None)).as_string(None)
