"""Connections to databases: pooled per process, closed when idle, and cut when the server does not answer."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.lookup.databases.database import Database
from watersmeet.lookup.databases.kinds import DATABASES, database_of
from watersmeet.settings.secret_detection import REFERENCE
from watersmeet.settings.secrets import hide, resolve

if TYPE_CHECKING:
    import sqlalchemy as sa

#: Connections are closed after this many seconds without use.
IDLE_SECONDS = 60.0
#: How long after the server's own timeout a connection is cut.
_GRACE_SECONDS = 2.0

_STAND_IN = re.compile(r"watersmeet-reference-(\d+)-")


@dataclass(frozen=True, slots=True)
class Address:
    """The location of a database, and the login; every part may hold references to secrets.

    ``read_only`` connections cannot change the database.
    """

    url: str
    user: str | None
    password: str | None
    timeout: float
    read_only: bool = True

    @property
    def database(self) -> Database:
        """The kind of database."""
        return database_of(self.url)

    def resolved(self) -> sa.URL:
        """Return the address for SQLAlchemy with resolved secrets; printing it hides the password."""
        import sqlalchemy as sa

        text = self.url.removeprefix("jdbc:")
        if text.startswith("sqlite:") and not text.startswith("sqlite://"):
            return sa.URL.create("sqlite", database=resolve(text.removeprefix("sqlite:")))
        # split the URL before resolving references, and without them: they and their secrets may contain @ : / ? %
        references = [found[0] for found in REFERENCE.finditer(text)]
        numbers = itertools.count()
        try:
            url = sa.make_url(REFERENCE.sub(lambda _: f"watersmeet-reference-{next(numbers)}-", text))
        except (sa.exc.ArgumentError, ValueError):
            raise ConfigError(
                "option url is not a database URL", hint="write jdbc:postgresql://host:port/database"
            ) from None

        def resolved(part: str) -> str:
            return resolve(_STAND_IN.sub(lambda found: references[int(found[1])], part))

        def first(*parts: object) -> str | None:
            return next((resolved(str(part)) for part in parts if part), None)

        return url.set(
            drivername=self.database.driver or url.drivername,
            host=first(url.host),
            database=first(url.database),
            username=first(self.user, url.query.get("user"), url.username),
            password=first(self.password, url.query.get("password"), url.password),
            query={
                name: resolved(value) if isinstance(value, str) else tuple(map(resolved, value))
                for name, value in url.query.items()
                if name not in ("user", "password")
            },
        )


def place_of(address: Address) -> str:
    """Return how messages name a database: its kind, and its host and port if it has them."""
    url = address.resolved()
    kind = address.database.shown or url.get_backend_name()
    place = url.database if url.host is None else url.host if url.port is None else f"{url.host}:{url.port}"
    return hide(f"{kind} at {place}")


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


def require_packages(url: str) -> None:
    """Raise ``ConnectorError`` where the packages for a kind of database are not installed."""
    database = database_of(url)
    missing = [
        name for name in dict.fromkeys(("sqlalchemy", database.package)) if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ConnectorError(
            f"connector = 'jdbc' needs the package {' and '.join(missing)}",
            hint=f"pip install '.[{database.extra}]' in a clone of Watersmeet, on every worker",
        )


def engine_of(address: Address) -> sa.Engine:
    """Return the process's engine for an address. Its connections are closed when it is idle."""
    if address not in _pools:
        _pools[address] = _Pool(_new_engine(address))
    pool = _pools[address]
    pool.closes_when_idle()
    return pool.engine


def close_all() -> None:
    """Close all unused connections of this process."""
    for pool in _pools.values():
        if pool.idle is not None:
            pool.idle.cancel()
        pool.engine.dispose()
    _pools.clear()


def _new_engine(address: Address) -> sa.Engine:
    import sqlalchemy as sa

    require_packages(address.url)
    url = address.resolved()
    settings = address.database.settings(url.query, address.timeout, address.read_only)
    try:
        return sa.create_engine(url, hide_parameters=True, **settings)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise ConnectorError(
            f"there is no driver for {url.drivername}: {hide(str(error))}",
            hint=f"these are tested: {', '.join(DATABASES)}; others need their SQLAlchemy driver on every worker",
        ) from None


@dataclass(slots=True)
class Deadline:
    """Whether the connection was cut."""

    passed: bool = False


@contextlib.contextmanager
def deadline(connection: sa.Connection, seconds: float) -> Iterator[Deadline]:
    """Cut the connection if the block takes longer: a hanging server ignores its own timeout."""
    fileno = getattr(connection.connection.driver_connection, "fileno", None)
    if fileno is None:  # SQLite has no socket
        yield Deadline()
        return
    with socket_deadline(fileno(), seconds) as state:
        yield state


@contextlib.contextmanager
def socket_deadline(fileno: int, seconds: float) -> Iterator[Deadline]:
    """Cut the connection of a socket if the block takes longer."""
    state = Deadline()
    line = socket.socket(fileno=os.dup(fileno))

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
