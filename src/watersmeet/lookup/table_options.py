"""The WITH options of external tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.settings.durations import seconds
from watersmeet.settings.option_parsing import Model, parse_options
from watersmeet.settings.secrets import require_references


class LookupOptions(BaseModel):
    """The options of every table: how long rows are cached, and what happens when the table cannot be reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lookup_cache_rows: Annotated[int, Field(ge=0)] = 100_000
    """The most rows of the table that a worker process caches for one query; 0 caches none."""
    lookup_cache_ttl: Annotated[float, Field(ge=0)] = 60.0
    """Seconds for which a result, also an empty one, is cached; written ``'60 seconds'``."""
    lookup_timeout: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds that one query or one connection attempt may take; written ``'10 seconds'``."""
    lookup_max_retries: Annotated[int, Field(ge=0)] = 3
    """How often a failed query is retried, after pauses that double from 0.2 to 10 seconds."""
    lookup_on_error: Literal["fail", "null", "retry"] = "fail"
    """After the last retry: stop the query, treat the keys as not found, or retry until the table is back."""

    @field_validator("lookup_cache_ttl", "lookup_timeout", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return seconds(value)

    @property
    def retry_policy(self) -> RetryPolicy:
        """The policy for failed queries."""
        return RetryPolicy(self.lookup_max_retries, OnError(self.lookup_on_error))


class DatabaseOptions(BaseModel):
    """The location of a table of a database, with unresolved references to secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, Field(pattern=r"^jdbc:\w+:.+")]
    """``jdbc:postgresql://host:port/database``, then ``?sslmode=require`` and other options of the driver."""
    table: Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)?$")]
    """A table or a view, with its schema if needed: ``sales.customers``."""
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


class DuckDbFile(BaseModel):
    """The location of a table of a DuckDB file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(min_length=1)]
    table: Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)?$")]
    """A table or a view, with its schema if needed: ``sales.customers``."""


class DuckDbOptions(LookupOptions, DuckDbFile):
    """A table of a DuckDB file."""


def parse_table_options(model: type[Model], connector: str, options: Mapping[str, object]) -> Model:
    """Return the checked options of a WITH clause.

    Raises ``ConfigError`` for a secret in clear text, and for missing, unknown or wrong options.
    """
    require_references({name: str(value) for name, value in options.items()})
    return parse_options(model, connector, options)
