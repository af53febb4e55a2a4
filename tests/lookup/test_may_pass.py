"""Which errors of a database may pass by themselves."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import errors as states

from watersmeet.connectors.jdbc_failures import failure
from watersmeet.errors import SinkOutageError
from watersmeet.lookup.connections import Address, may_pass, place_of

HOST = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '


def raised(error: Exception) -> sa.exc.DBAPIError:
    """As SQLAlchemy hands on what the driver raised."""
    module = sqlite3 if isinstance(error, sqlite3.Error) else psycopg
    found = sa.exc.DBAPIError.instance("SELECT 1", {}, error, module.Error)
    assert isinstance(found, sa.exc.DBAPIError)
    return found


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError(f"{HOST}Connection refused\n\tIs the server running on that host?"),
        psycopg.OperationalError(f"{HOST}FATAL:  the database system is starting up"),
        psycopg.OperationalError(f"{HOST}FATAL:  the database system is in recovery mode"),
        psycopg.OperationalError("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution"),
        psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly"),
        psycopg.errors.ConnectionTimeout("connection timeout expired"),
        states.AdminShutdown("terminating connection due to administrator command"),
        states.CrashShutdown("terminating connection because of crash of another server process"),
        states.CannotConnectNow("the database system is shutting down"),
        states.TooManyConnections("sorry, too many clients already"),
        states.DeadlockDetected("deadlock detected"),
        states.SerializationFailure("could not serialize access due to concurrent update"),
        states.QueryCanceled("canceling statement due to statement timeout"),
        states.IdleInTransactionSessionTimeout("terminating connection due to idle-in-transaction timeout"),
        sqlite3.OperationalError("database is locked"),
    ],
    ids=str,
)
def test_these_may(error: Exception) -> None:
    assert may_pass(raised(error))


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError(f'{HOST}FATAL:  password authentication failed for user "ada"'),
        psycopg.OperationalError(f'{HOST}FATAL:  database "shop" does not exist'),
        psycopg.OperationalError(f"{HOST}FATAL:  no pg_hba.conf entry for host"),
        states.UniqueViolation("duplicate key value violates unique constraint"),
        states.CheckViolation("new row violates check constraint"),
        states.UndefinedTable('relation "orders" does not exist'),
        states.InsufficientPrivilege("permission denied for table orders"),
        states.StringDataRightTruncation("value too long for type character varying(9)"),
        states.DiskFull("could not extend file: No space left on device"),
        sqlite3.OperationalError("no such table: orders"),
        sqlite3.OperationalError("attempt to write a readonly database"),
    ],
    ids=str,
)
def test_these_stay(error: Exception) -> None:
    assert not may_pass(raised(error))


def test_what_is_waited_for_names_the_database_and_the_reason_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_HOST", "secret-host")
    address = Address("jdbc:postgresql://${env:DB_HOST}:5432/shop", "ada", None, 5)
    assert place_of(address) == "PostgreSQL at ***:5432"
    error = failure("w", raised(psycopg.OperationalError(f"{HOST}FATAL:  the database system is starting up")), address)
    assert isinstance(error, SinkOutageError)
    assert error.waiting == "waiting for PostgreSQL at ***:5432: the database system is starting up"
    assert place_of(Address("jdbc:sqlite:/tmp/shop.db", None, None, 5)) == "SQLite at /tmp/shop.db"
    assert place_of(Address("jdbc:postgresql://db/shop", None, None, 5)) == "PostgreSQL at db"
