"""A table of a database as a sink: its options, and the transaction that writes a batch to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.jdbc.failures import NoAnswerError, in_time, in_two_attempts
from watersmeet.connectors.jdbc.staging import Place, Staged, drop_staged, find_place, merges
from watersmeet.connectors.jdbc.table import KEYS, delete, described, key_of, require_uuids, uuids_of
from watersmeet.connectors.net_changes import net_changes
from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.lookup.connections import Address, engine_of, require_packages
from watersmeet.lookup.databases.kinds import DATABASES, database_of, scheme_of
from watersmeet.lookup.table_options import DatabaseOptions, parse_table_options
from watersmeet.settings.durations import seconds

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")
_STAGES = "postgresql"
_NO_STAGING = "none"
_CHUNK = 2_000
"""Rows per call of the driver."""


class JdbcSinkOptions(DatabaseOptions):
    """The WITH options of a table that results are written to."""

    timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds that a statement with some of a batch's rows, or making a connection, may take: ``'60 seconds'``."""
    staging: Annotated[str, Field(min_length=1)] | None = None
    """The schema in which tasks stage rows (None: that of the table); ``none``: all rows pass through the driver."""

    @field_validator("timeout", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return seconds(value)


def options_of(options: Mapping[str, str]) -> JdbcSinkOptions:
    """Return the checked options of a WITH clause; raises ``ConfigError`` for missing, unknown or wrong ones."""
    given = parse_table_options(JdbcSinkOptions, "jdbc", options)
    database = scheme_of(given.url)
    if not database_of(given.url).is_written:
        written = [name for name, each in DATABASES.items() if each.is_written]
        raise ConfigError(
            f"jdbc writes to {', '.join(written[:-1])} and {written[-1]}, not to {database}",
            hint="for another database, write a changelog that a program can apply to it: kafka, or files"
            " WITH (changelog = 'true')",
            option="url",
        )
    if given.staging is not None and database != _STAGES:
        raise ConfigError(f"staging is for {_STAGES}: the driver writes to {database}", option="staging")
    return given


@dataclass(frozen=True, slots=True)
class Staging:
    """What tasks have staged for a batch; ``drops``: look for what other attempts have left, and drop it."""

    place: Place
    prefix: str
    staged: Sequence[Staged]
    drops: bool


@dataclass(frozen=True, slots=True)
class JdbcSink:
    """The table of a stream and its statements; columns are ``c0``, ``c1``, … in declared order."""

    stream: StreamDef
    address: Address
    table: sa.Table
    upsert: sa.Insert
    delete: sa.Delete
    padded: Sequence[str] = ()
    """The columns in which a space at the end of a text does not count."""
    filled: Sequence[str] = ()
    """The columns in which a NULL would silently become another value."""

    def write(
        self,
        rows: pa.Table,
        batch_id: int,
        staging: Staging | None = None,
        *,
        waits_for_writers: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write a batch, which may have been written before: rows, and others that are staged.

        With ``waits_for_writers``, all transactions end first that have written these keys. ``check`` is called before
        the commit, when the rows are locked: if it raises, nothing is written.

        Raises ``SinkOutageError`` where the database is down or hangs, ``ConnectorError`` where it refuses, and for
        several rows of a key, and ``StagedRowsLostError`` where staged rows are missing.
        """
        changes = net_changes(rows, self.stream)
        self._require_distinct(changes)
        self._require_values(changes)
        what = f"batch {batch_id} could not be written to {named(self.stream)}"
        in_two_attempts(lambda: self._transact(changes, staging, waits_for_writers, check), what, self.address)

    @property
    def uuids(self) -> list[str]:
        """The columns declared as texts that the table has as UUIDs."""
        return uuids_of(self.table, self.stream)

    def _transact(
        self, changes: pa.Table, staging: Staging | None, waits_for_writers: bool, check: Callable[[], None]
    ) -> None:
        if not changes.num_rows and not (staging and staging.staged):
            return
        with engine_of(self.address).connect() as connection, connection.begin() as transaction:
            if waits_for_writers:
                with in_time(connection, self.address):
                    self.address.database.wait_for_writers(self.table, connection)
            for statement, values in self._statements(changes, staging, connection):
                with in_time(connection, self.address):
                    connection.execute(statement, values)
            if staging is not None and staging.drops:
                drop_staged(staging.place, staging.prefix, connection, self.address)
            check()
            with in_time(connection, self.address):
                transaction.commit()

    def _statements(
        self, changes: pa.Table, staging: Staging | None, connection: sa.Connection
    ) -> Iterator[tuple[sa.Executable, Any]]:
        """Yield all deletes, then all upserts: keys that differ here may be equal in the database."""
        staged_deletes: Sequence[tuple[sa.Executable, Any]] = ()
        staged_upserts: Sequence[tuple[sa.Executable, Any]] = ()
        if staging is not None:
            staged_deletes, staged_upserts = merges(
                self.table, self.stream, staging.place, staging.staged, connection, self.address
            )
        names = [column.name for column in self.stream.columns]
        gone = pc.less(changes[TP_DELTA], 0)
        keys = changes.filter(gone).select(self.stream.primary_key)
        for start in range(0, keys.num_rows, _CHUNK):
            yield self.delete, {KEYS: _values(keys.slice(start, _CHUNK))}
        yield from staged_deletes
        held = changes.filter(pc.invert(gone)).select(names).rename_columns([f"c{i}" for i in range(len(names))])
        for start in range(0, held.num_rows, _CHUNK):
            yield self.upsert, held.slice(start, _CHUNK).to_pylist()
        yield from staged_upserts

    def _require_distinct(self, changes: pa.Table) -> None:
        """Raise ``ConnectorError`` for a text that equals another one in the table, but not here."""
        require_uuids(changes, self.uuids, self.stream)
        for name in self.padded:
            ends = changes.filter(pc.ends_with(changes[name], " "))
            if ends.num_rows:
                raise ConnectorError(
                    f"a text for {named(self.stream)} ends in a space: {name} = {ends[name][0].as_py()!r}",
                    detail="by that column's type or collation a space at the end makes no difference",
                    hint=f"SELECT rtrim({name}), or make it VARCHAR … COLLATE utf8mb4_nopad_bin (MariaDB),"
                    " utf8mb4_0900_bin (MySQL)",
                )

    def _require_values(self, changes: pa.Table) -> None:
        """Raise ``ConnectorError`` for a NULL that the table would silently replace."""
        held = changes.filter(pc.greater(changes[TP_DELTA], 0))
        for name in self.filled:
            if held[name].null_count:
                raise ConnectorError(
                    f"column {name} is NULL in a result: {named(self.stream)} would put a value of its own there",
                    hint=f"SELECT coalesce({name}, …), or let the column be NULL there, without AUTO_INCREMENT",
                )

    def staging_place(self) -> Place | None:
        """Return where tasks stage rows; None if all rows pass through the driver. Raises as ``find_place`` does."""
        given = options_of(self.stream.options)
        asked = given.staging
        if asked == _NO_STAGING or scheme_of(given.url) != _STAGES:
            return None

        return _inspected(lambda connection: find_place(self.table, asked, connection), self.stream, self.address)

    def drop_staged(self, place: Place, prefix: str) -> None:
        """Drop what was staged for a batch that failed; what cannot be dropped now, the next run drops."""
        import sqlalchemy as sa

        with (
            suppress(sa.exc.SQLAlchemyError, NoAnswerError),
            engine_of(self.address).connect() as connection,
            connection.begin(),
        ):
            drop_staged(place, prefix, connection, self.address)


def open_table(stream: StreamDef) -> JdbcSink:
    """Inspect the table of a stream and return it as a sink.

    Raises ``ConnectorError`` where it cannot be reached, does not exist, or has other columns, types or keys.
    """
    given = options_of(stream.options)
    require_packages(given.url)
    address = Address(given.url, given.user, given.password, given.timeout, read_only=False)

    def declared(columns: Sequence[str]) -> list[str]:
        return [stream.columns[int(column[1:])].name for column in columns]

    def open_in(connection: sa.Connection) -> JdbcSink:
        database = address.database
        table = described(stream, given.table, database, connection)
        key = key_of(table, stream)
        padded = database.require_upserts(table, key, connection)
        filled = database.fills(table, connection)
        upsert, gone = database.upsert(table, key), delete(table, stream)
        return JdbcSink(stream, address, table, upsert, gone, declared(padded), declared(filled))

    return _inspected(open_in, stream, address)


def _inspected(look: Callable[[sa.Connection], T], stream: StreamDef, address: Address) -> T:
    """Return what ``look`` finds in the database; raises as ``failure`` says."""

    def attempt() -> T:
        with engine_of(address).connect() as connection, in_time(connection, address):
            return look(connection)

    return in_two_attempts(attempt, f"{named(stream)} cannot be written to", address, hint=None)


def named(stream: StreamDef) -> str:
    """Return how messages name the table of a stream."""
    return f"table {stream.options['table']}"


def _values(keys: pa.Table) -> list[Any]:
    """Return keys as values, or as tuples of them where they have several columns."""
    columns = [column.to_pylist() for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
