"""MariaDB and MySQL, through PyMySQL."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from watersmeet.errors import ConfigError
from watersmeet.lookup.databases.database import Database
from watersmeet.lookup.databases.mysql_tables import (
    facts_of,
    moment_of,
    require_exact_texts,
    require_one_unique_index,
    require_plain_names,
    require_transactions,
)

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.types import TypeEngine

#: What a URL may ask of the driver. Limits of time, names and the session are set here.
_OPTIONS = ("charset", "ssl_ca", "ssl_capath", "ssl_cert", "ssl_cipher", "ssl_key", "ssl_check_hostname", "unix_socket")
_FILES = ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key")
#: Numbers of errors: a deadlock; a row that another transaction has changed since it was read.
_ENDED_FOR_ANOTHER = (1213, 1020)
#: Numbers of errors that pass.
_PASSING = (
    *_ENDED_FOR_ANOTHER,
    *(2002, 2003, 2005, 2006, 2013, 2055, 1927, 4031),  # no connection, or none any more
    *(1040, 1203, 1226),  # too many connections
    *(1047, 1053, 1290, 1836),  # the server starts, stops, or stands by
    *(1205, 1317, 1969, 3024),  # a statement took too long, or was ended
)


class MySql(Database):
    """Sessions are strict, so that no value is cut or rounded into range, and count time in UTC."""

    shown = "MySQL"
    driver = "mysql+pymysql"
    package = "pymysql"
    extra = "mysql"
    is_written = True
    takes_nan = False

    def settings(self, query: Mapping[str, object], timeout: float, read_only: bool) -> dict[str, Any]:
        """Return limits of time, by the server and by the driver, and the session's variables."""
        for name in query:
            if name not in _OPTIONS:
                raise ConfigError(
                    f"{self.shown} has no option {name} in the url",
                    hint=f"it takes {', '.join(_OPTIONS)}",
                    option="url",
                )
        _require_usable(query)
        seconds = math.ceil(timeout)
        # Comments that start with ! are statements to servers of that version. MariaDB reads no /*!80000.
        session = [
            # 0 in a column that counts is a 0, and not the next number
            "SET SESSION sql_mode='TRADITIONAL,NO_AUTO_VALUE_ON_ZERO', time_zone='+00:00'",
            f", innodb_lock_wait_timeout={seconds}, lock_wait_timeout={seconds}",
            f" /*M!100100 , max_statement_time={timeout:f} */",
            f" /*!80000 , max_execution_time={math.ceil(timeout * 1000)} */",
            " /*M!100000 , tx_read_only=1 */ /*!80000 , transaction_read_only=1 */" if read_only else "",
        ]
        arguments = {"connect_timeout": seconds, "read_timeout": seconds + 1, "write_timeout": seconds + 1}
        return {
            "connect_args": {**arguments, "init_command": "".join(session)},
            **({"isolation_level": "AUTOCOMMIT"} if read_only else {}),
        }

    def column_type(self, found: TypeEngine[Any], declared: pa.DataType) -> TypeEngine[Any]:
        """Return the type that reads floats as they are, TIMESTAMP as a moment, TINYINT(1) as a BOOLEAN."""
        import sqlalchemy as sa
        from sqlalchemy.dialects import mysql

        if isinstance(found, mysql.TINYINT) and found.display_width == 1 and pa.types.is_boolean(declared):
            return sa.Boolean()
        if isinstance(found, (mysql.FLOAT, mysql.DOUBLE, mysql.REAL)):
            return type(found)(found.precision, found.scale, asdecimal=False)
        if isinstance(found, mysql.TIMESTAMP):
            return moment_of(found.fsp)
        return found

    def read(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return a FLOAT as a double, because as text it has only six digits."""
        from sqlalchemy import literal_column
        from sqlalchemy.dialects import mysql

        is_single = isinstance(column.type, mysql.FLOAT)
        return (column + literal_column("0e0", mysql.DOUBLE(asdecimal=False))) if is_single else column

    def rounds(self, declared: pa.DataType, actual: TypeEngine[Any]) -> bool:
        """Return True also for FLOAT as DOUBLE, for fixed digits, and for what is filled up: BINARY(n)."""
        import sqlalchemy as sa
        from sqlalchemy.dialects import mysql

        if isinstance(actual, (mysql.FLOAT, mysql.DOUBLE, mysql.REAL)) and pa.types.is_floating(declared):
            has_fixed_digits = actual.scale is not None
            return has_fixed_digits or (isinstance(actual, mysql.FLOAT) and bool(declared == pa.float64()))
        if pa.types.is_timestamp(declared):
            return (getattr(actual, "fsp", None) or 0) < 6
        if isinstance(actual, (sa.BINARY, mysql.ENUM, mysql.SET)):  # an ENUM takes 'A' for its 'a'
            return True
        if pa.types.is_decimal(declared) and isinstance(actual, sa.Numeric):
            return bool(int(actual.scale or 0) < declared.scale)
        return super().rounds(declared, actual)

    def upsert(self, table: sa.Table, key: Sequence[sa.ColumnElement[Any]]) -> sa.Insert:
        """Return INSERT … ON DUPLICATE KEY UPDATE, which looks at every unique index of the table."""
        from sqlalchemy.dialects import mysql

        statement = mysql.insert(table)
        # in a table of nothing but its key, a column becomes what it is
        replaced = [each for each in table.c if each not in key] or list(table.c)[:1]
        return statement.on_duplicate_key_update({each.key: statement.inserted[each.key] for each in replaced})

    def require_upserts(
        self, table: sa.Table, key: Sequence[sa.ColumnElement[Any]], connection: sa.Connection
    ) -> list[str]:
        """Check that there are transactions, and that an upsert meets the row of its key alone."""
        import sqlalchemy as sa

        facts = facts_of(table, connection)
        require_plain_names(table)
        require_transactions(facts)
        require_one_unique_index(facts, [str(each.name) for each in key], [each.name for each in table.c])
        cut = [str(each.key) for each in table.c if isinstance(each.type, sa.CHAR)]  # a CHAR loses spaces at its end
        return list(dict.fromkeys([*require_exact_texts(facts, key), *cut]))

    def fills(self, table: sa.Table, connection: sa.Connection) -> list[str]:
        """Return the columns of TIMESTAMP NOT NULL, where NULL is the time of now, and of AUTO_INCREMENT."""
        filled = facts_of(table, connection).filled
        return [str(each.key) for each in table.c if each.name in filled]

    def said(self, error: BaseException) -> str:
        """Return the message without the number before it."""
        return str(error.args[1]) if len(error.args) > 1 else str(error)

    def may_pass(self, error: sa.exc.DBAPIError) -> bool:
        """Return whether the number of the error says so."""
        return error.connection_invalidated or _number(error.orig) in _PASSING

    def ended_for_another(self, error: BaseException | None) -> bool:
        """Return whether the number of the error says so."""
        return _number(error) in _ENDED_FOR_ANOTHER


class MariaDb(MySql):
    """MariaDB has MySQL's protocol."""

    shown = "MariaDB"


def _require_usable(query: Mapping[str, object]) -> None:
    """Raise ``ConfigError`` for a character set or a file that the driver would trip over."""
    from pymysql.charset import charset_by_name

    for name, value in query.items():
        if name == "charset" and charset_by_name(str(value).lower()) is None:
            raise ConfigError(f"there is no charset {value}, as the url says", hint="leave it out", option="url")
        if name in _FILES and not os.access(str(value), os.R_OK):
            raise ConfigError(f"{name} in the url: the file cannot be read", hint="correct its path", option="url")


def _number(error: BaseException | None) -> object:
    return error.args[0] if error is not None and error.args else None
