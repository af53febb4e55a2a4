"""Settings of a query (``SETTINGS name = value, …``), checked when they are parsed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from watersmeet.errors import ConfigError
from watersmeet.settings.durations import seconds
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.seek import seek_text
from watersmeet.settings.sizes import size, size_text

REAL_TIME = "real_time"
MODES = ("micro_batch", REAL_TIME)
#: What a hybrid operator keeps in memory if no setting bounds it.
DEFAULT_HOT_KEYS = 1_000_000
#: With less memory, a worker has no room for rows beside Python and its libraries.
LEAST_WORKER_BYTES = 400_000_000
_MOST_BYTES = 10**15


class QuerySettings(BaseModel):
    """The settings that a query can have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    join_max_buffered_bytes: Annotated[int, Field(gt=0, lt=_MOST_BYTES)] | None = None
    """The maximum state of each join in bytes, also written ``'100MB'``; at the limit the query stops, without losing
    rows."""
    eviction: Literal["stop", "oldest", "lru", "per_key", "pressure"] = "stop"
    """What makes room in the state of a join at its limit: nothing, so that the query stops; rows with the least event
    times; keys not used for longest; of each key with more than ``max_rows_per_key`` rows, the oldest; or, under
    pressure, a quarter of the state at once, the oldest rows."""
    max_rows_per_key: Annotated[int, Field(gt=0)] | None = None
    """The most rows of a key that each side of a join holds; what happens beyond, ``eviction`` says."""
    evicted_rows: Annotated[str, Field(min_length=1)] = "drop"
    """``drop``: only count evicted rows; else the name of an embedded stream that stores them."""
    multi_join: Literal["auto", "on", "off"] = "auto"
    """Whether inner and left joins of three streams and more with a common key run in one operator, which keeps no
    intermediate results: where they can, always (another query is refused), or never."""
    join_algorithm: Literal["auto", "symmetric", "sliding"] = "auto"
    """How windowed joins of two run: a pair as soon as both rows are there, or in the order of one side's times; by
    default in order where ORDER BY asks for it."""
    bad_rows: Literal["quarantine", "fail"] = "quarantine"
    """What happens to rows that cannot be read: they go to quarantine, or the query stops."""
    temporal_wait: Literal["frontier", "none"] = "frontier"
    """Whether FOR SYSTEM_TIME AS OF an event time waits for versions that may still arrive, or joins at once."""
    default_hash_join: Literal["memory", "hybrid"] = "memory"
    """Where a worker keeps rows of joins: in memory; or those written or found last, within ``max_hot_keys`` and
    ``max_hot_bytes``, and the others on disk."""
    default_hash_table: Literal["memory", "hybrid"] = "memory"
    """The same for groups of aggregates."""
    max_hot_keys: Annotated[int, Field(gt=0)] | None = None
    """How many rows a hybrid join or aggregate keeps in memory over all buckets; by default ``DEFAULT_HOT_KEYS`` unless
    ``max_hot_bytes`` bounds them."""
    max_hot_bytes: Annotated[int, Field(gt=0, lt=_MOST_BYTES)] | None = None
    """How many bytes of rows it keeps in memory, written ``'100MB'``."""
    late_rows: Annotated[str, Field(min_length=1)] = "drop"
    """``drop``: only count late rows; else the name of an embedded stream that stores them."""
    idle_timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a silent input no longer holds back the frontier; written ``'30 seconds'``."""
    allowed_lateness: Annotated[float, Field(ge=0)] | None = None
    """Seconds for which rows behind the frontier still correct results, in joins without a clause of their own; written
    ``'1 hour'``."""
    table_retention: Annotated[float, Field(gt=0)] | Literal["forever"] | None = None
    """Seconds behind the frontier for which changes of a table still correct results of temporal joins, and for which
    its versions can be asked for; written ``'1 day'``, or ``'forever'``."""
    join_ttl: Annotated[float, Field(gt=0)] | None = None
    """Seconds behind the frontier after which rows that no window bounds leave a join; written ``'1 hour'``."""
    max_future: Annotated[float, Field(gt=0)] | Literal["none"] | None = None
    """Seconds by which an event time may lie after the arrival of its row, written ``'1 hour'``: rows beyond are
    quarantined.  ``'none'``: no limit.  By default one day for timestamps in Kafka."""
    seek_to: str | None = None
    """Where the query first starts to read its streams, by arrival: ``'earliest'``, ``'latest'`` or a time."""
    deterministic: bool = False
    """Whether to refuse queries whose results depend on when they run or on the order in which rows arrive."""
    mode: Literal["micro_batch", "real_time"] = "micro_batch"
    """Whether results come batch by batch, or row by row within some ten milliseconds."""
    epoch: Annotated[float, Field(ge=1)] = 60.0
    """Seconds after which a query in real time makes its state durable; written ``'1 minute'``."""
    trigger: Annotated[float, Field(ge=0)] = 0.0
    """Seconds between the starts of two batches of a continuous run; written ``'1 second'``."""
    buckets: Annotated[int, Field(gt=0, le=4096)] | None = None
    """The number of buckets that state is divided into; fixed when the checkpoint is made."""
    skew: Literal["spread", "keep"] | None = None
    """Whether rows of hot keys are spread over the buckets; by default in queries that Watersmeet runs."""
    skew_rows: Annotated[int, Field(gt=0)] = 10_000
    """The least number of rows in one batch with which a key may be hot."""
    worker_memory: Annotated[int, Field(lt=_MOST_BYTES)] | None = None
    """The memory of one worker process in bytes, written ``'600MB'``; beyond it, state lies on disk and batches are
    taken in pieces.  By default a share of what the machine or the container has."""

    sink_retry: Annotated[float, Field(ge=0)] = 60.0
    """Seconds for which results are tried to be written again where their target cannot be reached; written
    ``'10 minutes'``."""
    source_retry: Annotated[float, Field(ge=0)] = 60.0
    """The same for what the query reads, and for the file system of its checkpoint."""

    @property
    def limits_joins(self) -> bool:
        """Whether joins may evict rows, or stop at a number of rows of a key."""
        return self.eviction != "stop" or self.max_rows_per_key is not None

    @property
    def is_real_time(self) -> bool:
        """Whether the query runs in real time."""
        return self.mode == REAL_TIME

    @property
    def is_hybrid(self) -> bool:
        """Whether joins or aggregates keep a part of their rows in memory and the others on disk."""
        return "hybrid" in (self.default_hash_join, self.default_hash_table)

    @property
    def hot_keys(self) -> int | None:
        """How many rows a hybrid operator keeps in memory; None if only their bytes are bounded."""
        return DEFAULT_HOT_KEYS if self.max_hot_keys is None and self.max_hot_bytes is None else self.max_hot_keys

    @field_validator(
        *("allowed_lateness", "join_ttl", "idle_timeout", "trigger", "epoch", "sink_retry", "source_retry"),
        mode="before",
    )
    @classmethod
    def _seconds(cls, value: object) -> object:
        return seconds(value)

    @field_validator("worker_memory", "max_hot_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return size(value)

    @field_validator("join_max_buffered_bytes", mode="before")
    @classmethod
    def _size_or_number(cls, value: object) -> object:
        is_number = isinstance(value, str) and value.strip().isdigit()
        return value if is_number else size(value)

    @field_validator("worker_memory")
    @classmethod
    def _enough(cls, value: int | None) -> int | None:
        if value is not None and value < LEAST_WORKER_BYTES:
            least = size_text(LEAST_WORKER_BYTES)
            raise ValueError(f"this is {size_text(value)}, and a worker needs at least {least}, such as '600MB'")
        return value

    @field_validator("table_retention", mode="before")
    @classmethod
    def _seconds_or_forever(cls, value: object) -> object:
        return "forever" if isinstance(value, str) and value.strip().lower() == "forever" else seconds(value)

    @field_validator("max_future", mode="before")
    @classmethod
    def _seconds_or_none(cls, value: object) -> object:
        return "none" if isinstance(value, str) and value.strip().lower() == "none" else seconds(value)

    @field_validator("seek_to", mode="before")
    @classmethod
    def _seek(cls, value: object) -> str:
        return seek_text(value)


#: Settings of earlier versions, in whose place there is ``worker_memory``.
_REPLACED = ("cache_bytes", "memory_limit")
#: Settings that bound what is in memory of a hybrid operator.
_OF_HYBRID = ("max_hot_keys", "max_hot_bytes")


def parse_settings(settings: Mapping[str, object]) -> QuerySettings:
    """Check the settings; ``ConfigError`` names the first that is unknown, wrong or without effect."""
    for name in _REPLACED:
        if name in settings:
            hint = "write SETTINGS worker_memory = '2GB': it bounds a worker process as a whole"
            raise ConfigError(f"SETTINGS has no option {name!r} any more", hint=hint, option=name)
    parsed = parse_options(QuerySettings, "SETTINGS", settings)
    for name in _OF_HYBRID:
        if name in parsed.model_fields_set and not parsed.is_hybrid:
            raise ConfigError(
                f"{name} bounds what hybrid joins and aggregates keep in memory, and there are none",
                hint=f"add default_hash_join = 'hybrid' or default_hash_table = 'hybrid', or leave {name} out",
                option=name,
            )
    return parsed
