"""Settings of a query (``SETTINGS name = value, …``), checked where they are made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.seek import seek_text

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)\s*", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: object) -> object:
    """A duration such as ``'30 seconds'`` as a number; what is no text stays as it is."""
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError("write a number and a unit, such as '30 seconds'")
    unit = found[2].lower()
    scale = 0.001 if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]]
    return float(found[1]) * scale


class QuerySettings(BaseModel):
    """What SETTINGS can say of a query."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    join_max_buffered_bytes: Annotated[int, Field(gt=0)] | None = None
    """The most bytes of state of each join; at the limit the query stops and nothing is lost."""
    bad_rows: Literal["quarantine", "fail"] = "quarantine"
    """What to do with rows that cannot be read: set them aside, or stop."""
    temporal_wait: Literal["frontier", "none"] = "frontier"
    """Whether FOR SYSTEM_TIME AS OF an event time waits for versions that may still come, or joins at once."""
    default_hash_join: Literal["memory", "hybrid"] = "memory"
    """Where rows of joins lie in a worker: in memory, or only ``max_hot_keys`` of them and the others on disk."""
    default_hash_table: Literal["memory", "hybrid"] = "memory"
    """The same for groups of aggregates."""
    max_hot_keys: Annotated[int, Field(gt=0)] = 1_000_000
    """How many rows, those written last, a hybrid join or aggregate keeps in memory, over all buckets."""
    late_rows: Annotated[str, Field(min_length=1)] = "drop"
    """``drop``: count late rows; else the name of an embedded stream that takes them."""
    idle_timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a silent input no longer holds time back; written ``'30 seconds'``."""
    seek_to: str | None = None
    """From where streams are read when the query first starts, by arrival: ``'earliest'``, ``'latest'`` or a time."""
    deterministic: bool = False
    """Whether to refuse whatever makes results depend on when the query runs or on how its rows happen to arrive."""
    trigger: Annotated[float, Field(ge=0)] = 0.0
    """Seconds between the starts of two batches of a continuous run; written ``'1 second'``."""
    buckets: Annotated[int, Field(gt=0, le=4096)] | None = None
    """Pieces into which state is cut; fixed when the checkpoint is made."""
    skew: Literal["spread", "keep"] | None = None
    """Whether rows of hot keys are spread over the buckets; by default in queries that Watersmeet runs."""
    skew_rows: Annotated[int, Field(gt=0)] = 10_000
    """With so many rows in one batch a key may be hot."""
    cache_bytes: Annotated[int, Field(gt=0)] = 4 << 30
    """The most bytes of state that one worker process holds in memory beside the durable log."""
    memory_limit: Annotated[str, Field(pattern=r"^\d+(\.\d+)?\s?[KMGT]i?B$")] | None = None
    """DuckDB's memory limit in one worker process, such as ``'2GB'``; beyond it, state is spilled to disk."""

    @field_validator("idle_timeout", "trigger", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return seconds(value)

    @field_validator("seek_to", mode="before")
    @classmethod
    def _seek(cls, value: object) -> str:
        return seek_text(value)


def parse_settings(settings: Mapping[str, object]) -> QuerySettings:
    """The settings, checked; ``ConfigError`` names the first that is unknown or wrong."""
    return parse_options(QuerySettings, "SETTINGS", settings)
