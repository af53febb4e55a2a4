"""Databases by the scheme of their URLs."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.lookup.databases.database import Database
from watersmeet.lookup.databases.mysql import MariaDb, MySql
from watersmeet.lookup.databases.postgresql import PostgreSql
from watersmeet.lookup.databases.sqlite import Sqlite

#: The kinds with code of their own, all of which are tested.
DATABASES: Mapping[str, Database] = {
    "postgresql": PostgreSql(),
    "mysql": MySql(),
    "mariadb": MariaDb(),
    "sqlite": Sqlite(),
}


def scheme_of(url: str) -> str:
    """Return ``postgresql`` of ``jdbc:postgresql://…``."""
    return url.split(":")[1].partition("+")[0]


def database_of(url: str) -> Database:
    """Return the kind of database that a URL names."""
    return DATABASES.get(scheme_of(url), Database())
