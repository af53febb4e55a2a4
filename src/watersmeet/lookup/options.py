"""The WITH options of a table that queries look up in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.settings.option_parsing import Model, parse_options
from watersmeet.settings.query_settings import seconds
from watersmeet.settings.secrets import require_references


class LookupOptions(BaseModel):
    """What every table has: how long rows are kept, and what happens when the table cannot be reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lookup_cache_rows: Annotated[int, Field(ge=0)] = 100_000
    """The most rows that a worker process keeps of the table for one query; 0 keeps none."""
    lookup_cache_ttl: Annotated[float, Field(ge=0)] = 60.0
    """Seconds for which what was found, or not found, is taken to hold; written ``'60 seconds'``."""
    lookup_timeout: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds that one query, or making a connection, may take; written ``'10 seconds'``."""
    lookup_max_retries: Annotated[int, Field(ge=0)] = 3
    """How often a failed query is tried again, after pauses that double from 0.2 to 10 seconds."""
    lookup_on_error: Literal["fail", "null", "retry"] = "fail"
    """After that: stop the query, take the keys as not found, or go on trying until the table is back."""

    @field_validator("lookup_cache_ttl", "lookup_timeout", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return seconds(value)

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often to ask again."""
        return RetryPolicy(self.lookup_max_retries, OnError(self.lookup_on_error))


class DatabaseOptions(BaseModel):
    """Where a table of a database is.  References to secrets are kept as they are written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, Field(pattern=r"^jdbc:\w+:.+")]
    """``jdbc:postgresql://host:port/database``; ``?sslmode=require`` and other options of the driver after it."""
    table: Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)?$")]
    """A table or a view, with its schema before it where it has one: ``sales.customers``."""
    user: str | None = None
    password: str | None = None


class JdbcOptions(LookupOptions, DatabaseOptions):
    """A table of a database."""


class FilesTableOptions(LookupOptions):
    """Parquet files: one file, or a folder of them."""

    path: Annotated[str, Field(min_length=1)]
    format: Literal["parquet"] = "parquet"


class DeltaOptions(LookupOptions):
    """A Delta table."""

    path: Annotated[str, Field(min_length=1)]


def parse_table_options(model: type[Model], connector: str, options: Mapping[str, object]) -> Model:
    """The options of a WITH clause, checked; ``ConfigError`` for what is missing, unknown or wrong.

    So too for a secret that is written out, also within an URL.
    """
    require_references({name: str(value) for name, value in options.items()})
    return parse_options(model, connector, options)
