"""What goes wrong where PostgreSQL's changes are read: which failures may pass, and what to do about the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from watersmeet.connectors.jdbc.failures import without_address
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.lookup.connections import Address, place_of
from watersmeet.settings.secrets import hide

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy as sa

ANEW = "start the query on a new checkpoint: it begins with a new snapshot (its state begins empty)"
_PRIVILEGES = (
    "the user needs LOGIN, REPLICATION and SELECT on the table, and to create the publication also CREATE on the "
    "database and the table's ownership (docs/security.md#postgresql-as-a-source)"
)
#: What to do, by state of SQL.
_HINTS = {
    "42501": _PRIVILEGES,
    "53400": "raise max_replication_slots on the server, or drop slots that nobody uses (pg_replication_slots)",
    "28000": _PRIVILEGES,
    "42704": ANEW,  # the publication, or the slot, was dropped while it was read
    "55000": ANEW,  # the slot has lost its log
}
#: What the server says to a user who connects to replicate and may not: it has no state of SQL then.
_MAY_NOT = ("must be superuser or replication role", "REPLICATION attribute", "permission denied to start WAL sender")
#: A slot is in use, a lock was not to be had, a statement took too long, the server has ended the session.
_PASSING = ("55006", "55P03", "57014", "57P01", "57P02", "57P03", "57P05")


@contextmanager
def failures(what: str, address: Address) -> Iterator[None]:
    """Turn what the driver raises into ``OutageError`` where it may pass, else into ``ConnectorError``."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise failure(what, error, address) from None


def failure(what: str, error: psycopg.Error, address: Address) -> ConnectorError:
    """Return an error with the first line of the driver's message, without secrets."""
    said = hide((str(error).strip() or type(error).__name__).splitlines()[0])
    state = error.sqlstate
    message = f"{what}: {said}"
    if any(each in str(error) for each in _MAY_NOT):
        return ConnectorError(message, hint=_PRIVILEGES)
    if state in _PASSING or address.database.may_pass(_as_others_raise(error)):
        return OutageError(message, waits_for=f"{place_of(address)}: {without_address(said)}")
    return ConnectorError(message, hint=_HINTS.get(state or ""))


def _as_others_raise(error: psycopg.Error) -> sa.exc.DBAPIError:
    """Return the error as SQLAlchemy would raise it."""
    import psycopg
    import sqlalchemy as sa

    is_operational = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return (sa.exc.OperationalError if is_operational else sa.exc.DatabaseError)(None, None, error)
