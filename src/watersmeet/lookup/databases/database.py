"""What code that reads or writes tables has to know of a kind of database; most of it is the same for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from watersmeet.lookup.jdbc_types import python_type

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.types import TypeEngine

#: Parts of messages for which trying again does not help: logins and names; SQLite's files.
_LASTING = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "no such table",
    "no such column",
    "unable to open database file",
    "readonly database",
    "disk is full",
)
#: The same as states of SQL: the disk is full, a limit of the server's configuration.
_LASTING_STATES = ("53100", "53400")
_PASSING_STATES = ("25P03",)  # the server has ended an idle transaction
#: States of SQL: a transaction that others do not let be serialized, a deadlock.
_ENDED_FOR_ANOTHER = ("40001", "40P01")


class Database:
    """A kind of database that only lookups read, with nothing of its own. Subclasses are the kinds that are tested."""

    shown: ClassVar[str] = ""
    """Its name in messages; empty: as SQLAlchemy names it."""
    driver: ClassVar[str] = ""
    """SQLAlchemy's name of dialect and driver; empty: as the URL has it."""
    package: ClassVar[str] = "sqlalchemy"
    """The driver's module."""
    extra: ClassVar[str] = "jdbc"
    """The extra of this project that installs it."""
    is_written: ClassVar[bool] = False
    """Whether it takes results."""
    takes_arrays: ClassVar[bool] = False
    """Whether keys are sent as arrays, which may have any length."""
    takes_nul: ClassVar[bool] = True
    """Whether its texts may have a NUL character."""
    takes_nan: ClassVar[bool] = True
    """Whether its numbers may be NaN or infinite."""

    def settings(self, query: Mapping[str, object], timeout: float, read_only: bool) -> dict[str, Any]:
        """Return how an engine is made; ``query`` has the options of the URL. Raises ``ConfigError`` for these."""
        return {}

    def column_type(self, found: TypeEngine[Any], declared: pa.DataType) -> TypeEngine[Any]:
        """Return the type by which values of a column are read and bound that is declared so."""
        return found

    def read(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return what is selected to read a column."""
        return column

    def rounds(self, declared: pa.DataType, actual: TypeEngine[Any]) -> bool:
        """Return whether the database would silently round a value that is written."""
        import sqlalchemy as sa

        if pa.types.is_decimal(declared):
            if isinstance(actual, sa.Integer):
                return bool(declared.scale > 0)
            scale = getattr(actual, "scale", None)
            return scale is not None and scale < declared.scale
        if pa.types.is_floating(declared):
            # PostgreSQL keeps only 15 digits of a double in a numeric column
            return python_type(actual) is not float or (isinstance(actual, sa.REAL) and declared == pa.float64())
        if pa.types.is_timestamp(declared):
            return (getattr(actual, "precision", None) or 6) < 6
        return False

    def upsert(self, table: sa.Table, key: Sequence[sa.ColumnElement[Any]]) -> sa.Insert:
        """Return the statement that inserts a row or replaces that of its key."""
        raise NotImplementedError

    def wait_for_writers(self, table: sa.Table, connection: sa.Connection) -> None:
        """Wait for other transactions that have written to the table, and let none write until this one ends.

        By default nothing: a DELETE waits for a transaction that has inserted the same key.  Subclasses are for
        databases in which it does not.
        """

    def require_upserts(
        self, table: sa.Table, key: Sequence[sa.ColumnElement[Any]], connection: sa.Connection
    ) -> list[str]:
        """Check what upserts need beside a unique key.

        Return the columns, as ``c0``, …, of which no text may end in a space. Raises ``ConnectorError`` for a table in
        which a write would change other rows than those of its keys.
        """
        return []

    def fills(self, table: sa.Table, connection: sa.Connection) -> list[str]:
        """Return the columns, as ``c0``, …, in which a NULL that is written silently becomes another value."""
        return []

    def said(self, error: BaseException) -> str:
        """Return what the driver says."""
        return str(error)

    def may_pass(self, error: sa.exc.DBAPIError) -> bool:
        """Return whether what the database raised may not be raised again later.

        It is down, starts, shuts down, does not answer, is overloaded, or has ended a transaction for another's sake.
        """
        import sqlalchemy as sa

        state = getattr(error.orig, "sqlstate", None)
        passes = isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)) or error.connection_invalidated
        if state in _PASSING_STATES:
            return True
        return passes and state not in _LASTING_STATES and not any(each in str(error.orig) for each in _LASTING)

    def ended_for_another(self, error: BaseException | None) -> bool:
        """Return whether the database has ended a transaction for the sake of another one."""
        return getattr(error, "sqlstate", None) in _ENDED_FOR_ANOTHER


def on_conflict(statement: Any, key: Sequence[sa.ColumnElement[Any]]) -> sa.Insert:
    """Return an INSERT of PostgreSQL or SQLite that replaces the row of a key."""
    replaced = {each.key: statement.excluded[each.key] for each in statement.table.c if each not in key}
    if not replaced:
        return statement.on_conflict_do_nothing(index_elements=key)  # type: ignore[no-any-return]
    return statement.on_conflict_do_update(index_elements=key, set_=replaced)  # type: ignore[no-any-return]
