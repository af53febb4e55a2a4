"""Tables of a database as external tables, through SQLAlchemy.

One query asks for all keys of a batch. SQLAlchemy binds values and quotes names. Declared columns are compared with the
table's before the first query, so that a wrong column is one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import pyarrow as pa

from watersmeet.columns import same_name
from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.expressions.type_names import spark_type
from watersmeet.lookup.connections import Address, deadline, engine_of
from watersmeet.lookup.databases.database import Database
from watersmeet.lookup.jdbc_types import as_arrow, bind_type, fits, key_values, python_type
from watersmeet.lookup.source import UnavailableError, both_names
from watersmeet.settings.secrets import hide

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")
#: The most values of one query; PostgreSQL takes keys as arrays of any length instead.
_MAX_PARAMETERS = 10_000


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """A table or view of a database; its name in SQL is ``known_as``. Only the columns of ``schema`` are read."""

    address: Address
    table: str
    schema: pa.Schema
    known_as: str = ""

    @property
    def name(self) -> str:
        """The table's name in SQL and in the database."""
        return both_names(self.known_as, self.table)

    @property
    def max_keys(self) -> int | None:
        """Any number (None) where keys are sent as arrays."""
        return None if self.address.database.takes_arrays else _MAX_PARAMETERS // len(self.schema)

    def check(self) -> None:
        """Compare the table's columns with the declared ones."""
        self._connected(self._table)

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Return the rows of the keys, by one query."""

        def ask(connection: sa.Connection) -> Sequence[sa.Row[Any]]:
            query = _query(self._table(connection), self.schema, keys, self.address.database)
            return connection.execute(query).all()

        return as_arrow(self.name, self.schema, self._connected(ask))

    def _connected(self, ask: Callable[[sa.Connection], T]) -> T:
        """Call ``ask`` with a connection, which is cut if the call takes too long."""
        import sqlalchemy as sa

        engine = engine_of(self.address)
        # the server may have restarted since a pooled connection was last used: retry once with a new one
        for last in (False, True):
            try:
                with engine.connect() as connection, deadline(connection, self.address.timeout) as limit:
                    try:
                        return ask(connection)
                    except sa.exc.DBAPIError as error:
                        if limit.passed:
                            connection.invalidate()
                            raise UnavailableError(f"no answer within {self.address.timeout:g} seconds") from error
                        raise
            except sa.exc.DBAPIError as error:
                if last or not error.connection_invalidated:
                    raise self._translated(error) from None
        raise AssertionError

    def _table(self, connection: sa.Connection) -> sa.TableClause:
        if self not in _described:
            _described[self] = _describe(self, connection)
        return _described[self]

    def _translated(self, error: sa.exc.DBAPIError) -> Exception:
        """Return the driver's error as ours, by whether a retry may help, with its first line and without secrets."""
        database, cause = self.address.database, error.orig or error
        said = hide((database.said(cause).strip() or type(cause).__name__).splitlines()[0])
        _described.pop(self, None)
        if database.may_pass(error):
            return UnavailableError(said)
        return ConnectorError(f"table {self.table} cannot be looked up in: {said}")


#: Tables that were compared with their declaration; a failed query removes its table.
_described: dict[JdbcSource, sa.TableClause] = {}


def _describe(source: JdbcSource, connection: sa.Connection) -> sa.TableClause:
    """Return the table with the declared columns, under the database's names and types.

    Raises ``ConnectorError`` where the table or a column does not exist, or a type does not fit.
    """
    import sqlalchemy as sa

    *schema, name = source.table.split(".")
    try:
        found = {each["name"]: each["type"] for each in sa.inspect(connection).get_columns(name, *schema)}
    except sa.exc.NoSuchTableError:
        raise ConnectorError(
            f"the database has no table {source.table}", hint="correct the option table, or grant the user access to it"
        ) from None
    columns = []
    for declared in source.schema:
        actual = same_name(declared.name, found)
        if actual is None:
            raise ConnectorError(
                f"table {source.table} has no column {declared.name}", hint=did_you_mean(declared.name, found)
            )
        kind = source.address.database.column_type(found[actual], declared.type)
        if not fits(declared.type, kind):
            raise ConnectorError(
                f"column {actual} of table {source.table} is {found[actual]!s}: it cannot be declared as "
                f"{spark_type(declared.type)}",
                hint="declare the type that the table has, or look up in a view that casts it",
            )
        columns.append(sa.column(actual, kind))
    return sa.table(sa.quoted_name(name, quote=True), *columns, schema=schema[0] if schema else None)


def _query(table: sa.TableClause, schema: pa.Schema, keys: pa.Table, database: Database) -> sa.Select[Any]:
    """Return one SELECT for all keys, sent as an array per key column where the database takes them."""
    import sqlalchemy as sa

    columns = dict(zip(schema.names, table.columns, strict=True))
    wanted = [columns[name] for name in keys.column_names]
    values = [
        key_values(column.to_pylist(), python_type(to.type), takes_nul=database.takes_nul, takes_nan=database.takes_nan)
        for column, to in zip(keys.columns, wanted, strict=True)
    ]
    selected = sa.select(*(database.read(column) for column in table.columns))
    if not database.takes_arrays:
        rows = [row for row in zip(*values, strict=True) if None not in row]
        if len(wanted) == 1:
            return selected.where(wanted[0].in_([value for (value,) in rows]))
        return selected.where(sa.tuple_(*wanted).in_(rows))
    from sqlalchemy.dialects.postgresql import ARRAY

    arrays = [
        sa.bindparam(None, given, type_=ARRAY(sa.Uuid() if python_type(to.type) is UUID else bind_type(field.type)))
        for given, field, to in zip(values, keys.schema, wanted, strict=True)
    ]
    if len(wanted) == 1:
        return selected.where(wanted[0] == sa.any_(arrays[0]))
    asked = sa.func.unnest(*arrays).table_valued(*(f"k{i}" for i in range(len(wanted))), name="asked").render_derived()
    same = sa.and_(*(column == key for column, key in zip(wanted, asked.columns, strict=True)))
    return selected.select_from(table.join(asked, same))
