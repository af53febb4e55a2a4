"""A connection to the PostgreSQL server whose changes are read, and what is asked of it.

Logical decoding is done by SQL functions: what a slot holds is peeked at, and is given again until the slot is
advanced. Only the slot is made by a command of the replication protocol, because that alone exports the snapshot at
which the slot begins.  One session at a time reads for a query: it holds an advisory lock, and who comes later ends it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from watersmeet.connectors.postgres.failures import failures
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.lookup.connections import Address, place_of, socket_deadline

if TYPE_CHECKING:
    import psycopg

_LOCK_SECONDS = 20.0
_FETCHED = 2_000
"""Messages that are fetched at a time."""
#: How values are written as text; rows that a policy would hide are an error.
_SESSION = {
    "DateStyle": "ISO,MDY",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "IntervalStyle": "postgres",
    "row_security": "off",
    "idle_in_transaction_session_timeout": "0",
    "statement_timeout": "0",
}
_STATUS = """
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn,
  s.confirmed_flush_lsn - '0/0'::pg_lsn, s.restart_lsn - '0/0'::pg_lsn, s.wal_status, s.slot_name IS NOT NULL,
  c.oid IS NOT NULL, (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (%s)
    AND NOT a.attisdropped), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM (SELECT 1) one LEFT JOIN pg_replication_slots s ON s.slot_name = %s LEFT JOIN pg_class c ON c.oid = %s
"""
_PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_OTHER_SLOTS = """
SELECT slot_name, (pg_current_wal_insert_lsn() - restart_lsn)::bigint FROM pg_replication_slots
WHERE database = current_database() AND slot_name LIKE 'watersmeet\\_%%' AND slot_name <> %s
  AND pg_current_wal_insert_lsn() - confirmed_flush_lsn > %s AND restart_lsn IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Status:
    """Where the server's log ends (written, flushed), the slot, whether the table is there, and the time.

    ``columns`` is how many of those that were asked for the table has, ``confirmed`` how far the
    slot has been advanced, ``restart`` where the WAL begins that it holds (None: it has no slot, or has lost it).
    """

    written: int
    flushed: int
    confirmed: int | None
    restart: int | None
    wal_status: str | None
    has_slot: bool
    has_table: bool
    columns: int
    time: int


@dataclass(frozen=True, slots=True)
class Server:
    """An open session."""

    address: Address
    connection: psycopg.Connection[tuple[Any, ...]]

    def close(self) -> None:
        """End the session."""
        self.connection.close()

    @contextmanager
    def in_time(self, what: str) -> Iterator[None]:
        """Raise ``OutageError`` if the server does not answer in time, and as ``failures`` does."""
        with socket_deadline(self.connection.fileno(), self.address.timeout) as limit:
            try:
                with failures(what, self.address):
                    yield
            except ConnectorError:
                if limit.passed:
                    said = f"no answer within {self.address.timeout:g} seconds"
                    raise OutageError(f"{what}: {said}", waits_for=f"{place_of(self.address)}: {said}") from None
                raise

    def rows(self, what: str, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask a question that is quickly answered."""
        with self.in_time(what):
            return self.connection.execute(query.encode(), values or None).fetchall()

    def status(self, what: str, slot: str, table: int, columns: Iterable[int]) -> Status:
        """Return where the server, the slot, the table and its columns of these numbers are."""
        ((written, flushed, confirmed, restart, *others),) = self.rows(what, _STATUS, list(columns), slot, table)
        begins = None if restart is None else int(restart)
        return Status(int(written), int(flushed), None if confirmed is None else int(confirmed), begins, *others)

    def lock(self, what: str, name: str) -> None:
        """Become the only session that reads for ``name``, and end the one that did."""
        number = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
        until = time.monotonic() + _LOCK_SECONDS
        while not self.rows(what, "SELECT pg_try_advisory_lock(%s)", number)[0][0]:
            if time.monotonic() > until:
                raise OutageError(
                    f"{what}: another session reads for this query, and does not end",
                    hint="is the query running elsewhere? Its user must be the same for a new run to end it",
                )
            self.rows(
                what,
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND (classid::bigint << 32) | objid::bigint = %s AND granted",
                number,
            )
            time.sleep(0.1)

    # -- the slot --------------------------------------------------------------------------------------------------

    def drop_slot(self, what: str, slot: str) -> None:
        """Drop the slot, if there is one; end a session that is about to make it."""
        import psycopg

        until = time.monotonic() + _LOCK_SECONDS
        while found := self.rows(what, "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", slot):
            if found[0][0] is not None:
                self.rows(what, "SELECT pg_terminate_backend(%s)", found[0][0])
            else:
                try:
                    self.connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
                except (psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
                    pass
                except psycopg.Error:
                    with failures(what, self.address):
                        raise
            if time.monotonic() > until:
                raise OutageError(f"{what}: the slot {slot} of an earlier attempt cannot be dropped")
            time.sleep(0.1)

    def peek(self, what: str, slot: str, publication: str, until: int | None, most: int) -> Generator[bytes]:
        """Yield the messages of the slot: whole transactions, about ``most`` messages, of commits before ``until``."""
        quoted = '"' + publication.replace('"', '""') + '"'
        with (
            failures(what, self.address),
            self.connection.transaction(),
            self.connection.cursor("watersmeet", binary=True) as cursor,
        ):
            cursor.itersize = _FETCHED
            cursor.execute(_PEEK, (slot, None if until is None else lsn_text(until), most, quoted))
            for (data,) in cursor:
                yield data

    def advance(self, what: str, slot: str, position: int) -> None:
        """Let the server forget what the slot holds before a position."""
        with failures(what, self.address):
            self.connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (slot, lsn_text(position)))

    def warnings_of_other_slots(self, what: str, slot: str, least: int) -> list[str]:
        """Return warnings of slots that hold much of the log: perhaps nobody reads them any more."""
        return [
            f"slot {other} holds {size_text(held)} of the server's log: if no query reads it any more, drop it "
            f"(SELECT pg_drop_replication_slot('{other}'))"
            for other, held in self.rows(what, _OTHER_SLOTS, slot, least)
        ]


def open_server(address: Address, what: str) -> Server:
    """Connect; raises ``ConnectorError``, ``OutageError`` where that may pass."""
    return Server(address, connected(address, what))


def connected(address: Address, what: str, *, replication: bool = False) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a session, one that takes commands of the replication protocol if asked."""
    import psycopg

    url = address.resolved()
    milliseconds = math.ceil(address.timeout * 1000)
    options = {**_SESSION, "lock_timeout": str(milliseconds)}
    arguments: dict[str, Any] = {
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": milliseconds,
        **url.query,
        "host": url.host,
        "port": url.port,
        "dbname": url.database,
        "user": url.username,
        "password": url.password,
        "application_name": "watersmeet",
        "client_encoding": "UTF8",
        "connect_timeout": max(2, math.ceil(address.timeout)),
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
    }
    if replication:
        arguments["replication"] = "database"
    with failures(what, address):
        return psycopg.connect(
            autocommit=True, **{name: value for name, value in arguments.items() if value is not None}
        )


def identified(address: Address, what: str) -> str:
    """Return what identifies the server; raises ``ConnectorError`` if the user may not replicate."""
    with connected(address, what, replication=True) as connection:
        result = connection.pgconn.exec_(b"IDENTIFY_SYSTEM")
        found = result.get_value(0, 0) if result.ntuples else None
    if found is None:
        said = result.error_message.decode(errors="replace").strip()
        raise ConnectorError(f"{what}: the server does not take commands of replication: {said}")
    return found.decode()


@contextmanager
def cancelled_after(connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """Cancel what a session does if the block takes longer."""
    timer = threading.Timer(seconds, connection.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def lsn_text(position: int) -> str:
    """Return a position in the log as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Return the position that PostgreSQL writes so."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def size_text(nbytes: int) -> str:
    """Return a size in words."""
    return f"{nbytes / (1 << 30):.1f} GB" if nbytes >= 1 << 30 else f"{nbytes / (1 << 20):.0f} MB"
