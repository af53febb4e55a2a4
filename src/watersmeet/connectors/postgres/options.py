"""The options of a stream of PostgreSQL's changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator

from watersmeet.errors import ConfigError
from watersmeet.lookup.connections import Address, require_packages
from watersmeet.lookup.table_options import DatabaseOptions, parse_table_options
from watersmeet.settings.durations import seconds

if TYPE_CHECKING:
    import sqlalchemy as sa

NAME = "postgres"
_URL = "jdbc:postgresql:"


@dataclass(frozen=True, slots=True)
class KnownAddress(Address):
    """An address whose secrets are resolved: the process beside the driver that reads may not have them."""

    known: sa.URL | None = field(default=None, repr=False)

    def resolved(self) -> sa.URL:
        """Return the address for SQLAlchemy."""
        assert self.known is not None
        return self.known


class PostgresOptions(DatabaseOptions):
    """The WITH options of a table whose changes are read."""

    publication: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """A publication that is there already (None: one is created for the table)."""
    max_rows_per_trigger: Annotated[int, Field(gt=0)] = 500_000
    """About how many rows a batch has at most: it ends with a transaction."""
    poll_interval: Annotated[float, Field(ge=0.05, le=3600)] = 1.0
    """Seconds between two looks for changes: ``'1 second'``."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds that a connection attempt, a lock, or a wait for open transactions may take: ``'60 seconds'``."""

    @field_validator("poll_interval", "timeout", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return seconds(value)

    def address(self) -> KnownAddress:
        """Where the database is; raises ``ConfigError`` for a reference that leads nowhere."""
        given = Address(self.url, self.user, self.password, self.timeout)
        require_packages(self.url)
        return KnownAddress(given.url, given.user, given.password, given.timeout, known=given.resolved())


def options_of(options: Mapping[str, str]) -> PostgresOptions:
    """Return the checked options of a WITH clause; raises ``ConfigError`` for missing, unknown or wrong ones."""
    given = parse_table_options(PostgresOptions, NAME, options)
    if not given.url.startswith(_URL):
        raise ConfigError(
            f"{NAME} reads PostgreSQL, not {given.url.split(':')[1]}",
            hint=f"write {_URL}//host:port/database",
            option="url",
        )
    return given
