"""Which errors of a database may pass by themselves."""

from __future__ import annotations

import sqlite3

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from psycopg import errors as states

from watersmeet.connectors.jdbc.failures import failure
from watersmeet.errors import SinkOutageError
from watersmeet.lookup.connections import Address, place_of
from watersmeet.lookup.databases.kinds import database_of

HOST = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '


def raised(error: Exception) -> sa.exc.DBAPIError:
    """As SQLAlchemy hands on what the driver raised."""
    module = {"sqlite3": sqlite3, "pymysql": pymysql}.get(type(error).__module__.partition(".")[0], psycopg)
    found = sa.exc.DBAPIError.instance("SELECT 1", {}, error, module.Error)
    assert isinstance(found, sa.exc.DBAPIError)
    return found


def passes(error: Exception) -> bool:
    """Whether the database that raised it thinks so."""
    kind = {"sqlite3": "sqlite", "pymysql": "mariadb"}.get(type(error).__module__.partition(".")[0], "postgresql")
    return database_of(f"jdbc:{kind}:").may_pass(raised(error))


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
        pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'db'"),
        pymysql.err.OperationalError(1213, "Deadlock found when trying to get lock"),
        pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"),
    ],
    ids=str,
)
def test_these_may(error: Exception) -> None:
    assert passes(error)


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
        pymysql.err.OperationalError(1045, "Access denied for user 'ada'@'db'"),
        pymysql.err.OperationalError(1049, "Unknown database 'shop'"),
        pymysql.err.DataError(1406, "Data too long for column 'status' at row 1"),
    ],
    ids=str,
)
def test_these_stay(error: Exception) -> None:
    assert not passes(error)


def test_what_is_waited_for_names_the_database_and_the_reason_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_HOST", "secret-host")
    address = Address("jdbc:postgresql://${env:DB_HOST}:5432/shop", "ada", None, 5)
    assert place_of(address) == "PostgreSQL at ***:5432"
    error = failure("w", raised(psycopg.OperationalError(f"{HOST}FATAL:  the database system is starting up")), address)
    assert isinstance(error, SinkOutageError)
    assert error.waiting == "waiting for PostgreSQL at ***:5432: the database system is starting up"
    assert place_of(Address("jdbc:sqlite:/tmp/shop.db", None, None, 5)) == "SQLite at /tmp/shop.db"
    assert place_of(Address("jdbc:mysql://db:3306/shop", None, None, 5)) == "MySQL at db:3306"
    assert place_of(Address("jdbc:postgresql://db/shop", None, None, 5)) == "PostgreSQL at db"
