"""Connections to databases: pooled per process, closed when nobody has asked for a while, cut when nobody answers."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.settings.secrets import hide, resolve

if TYPE_CHECKING:
    import sqlalchemy as sa

#: Connections that were not used for so many seconds are closed.
IDLE_SECONDS = 60.0
#: How much longer than its own time-out the server may take before the line is cut.
_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is and who asks; ``user`` and ``password`` may be references to secrets.

    Connections that ``read_only`` can change nothing there.
    """

    url: str
    user: str | None
    password: str | None
    timeout: float
    read_only: bool = True

    def resolved(self) -> sa.URL:
        """The address for SQLAlchemy, with secrets; it prints without them."""
        import sqlalchemy as sa

        # references stay until the parts are told apart: a secret may hold @ and %
        text = self.url.removeprefix("jdbc:")
        if text.startswith("sqlite:") and not text.startswith("sqlite://"):
            return sa.URL.create("sqlite", database=resolve(text.removeprefix("sqlite:")))
        try:
            url = sa.make_url(text)
        except (sa.exc.ArgumentError, ValueError):
            raise ConfigError("option url cannot be read", hint="write jdbc:postgresql://host:port/database") from None
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        user = self.user or url.query.get("user") or url.username
        password = self.password or url.query.get("password") or url.password
        return url.difference_update_query(["user", "password"]).set(
            host=None if url.host is None else resolve(url.host),
            database=None if url.database is None else resolve(url.database),
            username=None if user is None else resolve(str(user)),
            password=None if password is None else resolve(str(password)),
        )


@dataclass(slots=True)
class _Pool:
    engine: sa.Engine
    idle: threading.Timer | None = field(default=None)

    def closes_when_idle(self) -> None:
        if self.idle is not None:
            self.idle.cancel()
        self.idle = threading.Timer(IDLE_SECONDS, self.engine.dispose)
        self.idle.daemon = True
        self.idle.start()


_pools: dict[Address, _Pool] = {}


def require_packages() -> None:
    """Raise ``ConnectorError`` where what the extra ``jdbc`` brings is not installed."""
    missing = [name for name in ("sqlalchemy", "psycopg") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConnectorError(
            f"connector = 'jdbc' needs the package {' and '.join(missing)}",
            hint="pip install 'watersmeet[jdbc]', on every worker",
        )


def engine_of(address: Address) -> sa.Engine:
    """The process's engine for an address; its connections are closed when it is not asked for any more."""
    if address not in _pools:
        _pools[address] = _Pool(_new_engine(address))
    pool = _pools[address]
    pool.closes_when_idle()
    return pool.engine


def close_all() -> None:
    """Close all connections of this process that are not in use."""
    for pool in _pools.values():
        if pool.idle is not None:
            pool.idle.cancel()
        pool.engine.dispose()
    _pools.clear()


def _new_engine(address: Address) -> sa.Engine:
    import sqlalchemy as sa

    require_packages()
    url = address.resolved()
    settings: dict[str, Any] = {}
    if url.get_backend_name() == "postgresql":
        milliseconds = math.ceil(address.timeout * 1000)
        read_only = " -c default_transaction_read_only=on" if address.read_only else ""
        settings = {
            "connect_args": {
                "application_name": "watersmeet",
                "connect_timeout": max(2, math.ceil(address.timeout)),  # libpq takes 2 seconds at least
                "options": f"-c statement_timeout={milliseconds}{read_only}",
                "tcp_user_timeout": milliseconds,
            },
            "use_native_hstore": False,
        }
        if address.read_only:
            settings["isolation_level"] = "AUTOCOMMIT"
    try:
        return sa.create_engine(url, hide_parameters=True, **settings)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise ConnectorError(
            f"there is no driver for {url.drivername}: {hide(str(error))}",
            hint="jdbc:postgresql is what is tested; other databases need their SQLAlchemy driver on every worker",
        ) from None


@dataclass(slots=True)
class Deadline:
    """Whether the line was cut."""

    passed: bool = False


@contextlib.contextmanager
def deadline(connection: sa.Connection, seconds: float) -> Iterator[Deadline]:
    """Cut the line if the block takes longer: a server that hangs does not mind its own time-out."""
    state = Deadline()
    fileno = getattr(connection.connection.driver_connection, "fileno", None)
    if fileno is None:  # no line: SQLite
        yield state
        return
    line = socket.socket(fileno=os.dup(fileno()))

    def cut() -> None:
        state.passed = True
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds + _GRACE_SECONDS, cut)
    timer.daemon = True
    timer.start()
    try:
        yield state
    finally:
        timer.cancel()
        line.close()
