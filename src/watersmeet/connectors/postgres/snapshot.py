"""The rows that a table has when a query begins: a snapshot that ends where the slot's changes begin.

The server exports the snapshot at which it makes the slot: a transaction is in the one or in the other, never in both.
The table is locked before against being rewritten, as a rewritten table looks empty to an older snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from watersmeet.connectors.postgres.changes import PieceWriter
from watersmeet.connectors.postgres.failures import failure, failures
from watersmeet.connectors.postgres.rows import Row
from watersmeet.connectors.postgres.server import Server, cancelled_after, connected, lsn_of
from watersmeet.connectors.postgres.table import Table
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.lookup.connections import place_of
from watersmeet.runtime.pieces import End

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_OPEN = """
SELECT pid, usename, (extract(epoch FROM clock_timestamp() - xact_start))::bigint FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
"""
_DUPLICATE, _TOO_LONG = b"42710", (b"57014", b"55P03")


def take_snapshot(server: Server, table: Table, slot: str, writer: PieceWriter, what: str) -> None:
    """Make the slot, and write the table's rows as they are where it begins.

    Raises ``OutageError`` where transactions stay open for which the server waits, and as ``failures`` does.
    """
    from psycopg import sql

    name = sql.Identifier(table.schema, table.name)
    maker = connected(server.address, what, replication=True)
    try:
        with failures(what, server.address), server.connection.transaction():
            execute = server.connection.execute
            execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
            position, snapshot = _make_slot(maker, server, slot, what)
            execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
            found = execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()
            assert found is not None
            (time,) = found
            _copy(server, _query(table, name), writer, position, time)
            writer.cut(End.LAST_OF_SNAPSHOT, position, time)
    finally:
        maker.close()


def _query(table: Table, name: sql.Identifier) -> sql.Composed:
    from psycopg import sql

    columns = sql.SQL(", ").join(sql.Identifier(each.name) for each in table.columns.values())
    # of a table that others inherit from, the changes of these are not its own
    only = sql.SQL("" if table.partitioned else "ONLY ")
    return sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(columns, only, name)


def _copy(server: Server, query: sql.Composed, writer: PieceWriter, position: int, time: int) -> None:
    with server.connection.cursor().copy(query) as copy:
        for values in copy.rows():
            writer.add(Row(1, values), time)
            if writer.is_full:
                writer.cut(End.SNAPSHOT, position, time)


def _make_slot(maker: psycopg.Connection[tuple[object, ...]], server: Server, slot: str, what: str) -> tuple[int, str]:
    """Make the slot; return where it begins, and the snapshot of the rows there."""
    from psycopg import pq

    command = f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput EXPORT_SNAPSHOT'
    with cancelled_after(maker, server.address.timeout):
        result = maker.pgconn.exec_(command.encode())
    if result.status == pq.ExecStatus.TUPLES_OK:
        _, position, snapshot, _ = (result.get_value(0, column) for column in range(4))
        assert position is not None
        assert snapshot is not None
        return lsn_of(position.decode()), snapshot.decode()
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    if state in _TOO_LONG:
        raise _still_open(server, what)
    if state == _DUPLICATE:
        raise OutageError(f"{what}: an earlier attempt has just made the slot {slot}", waits_for="that attempt to end")
    raise _refused(server, result.error_message.decode(errors="replace"), state, what)


def _still_open(server: Server, what: str) -> OutageError:
    import psycopg

    with psycopg.connect(server.connection.info.dsn, password=server.connection.info.password) as other:
        row = other.execute(_OPEN).fetchone()
    who = "" if row is None else f": session {row[0]} of {row[1]} has one since {row[2]} s"
    said = f"transactions that were open when the slot was to be made have not ended{who}"
    return OutageError(
        f"{what}: {said}", hint="end them, or set timeout higher", waits_for=f"{place_of(server.address)}: {said}"
    )


def _refused(server: Server, message: str, state: bytes | None, what: str) -> ConnectorError:
    from psycopg import errors

    try:
        kind = errors.lookup((state or b"").decode())
    except KeyError:
        kind = errors.DatabaseError
    return failure(what, kind(message.removeprefix("ERROR:").strip()), server.address)
