"""What the catalogue knows of a stream: columns, event time, connector, and how its rows change."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict

from watersmeet.columns import TP_TIME
from watersmeet.expressions.times import EventTime, TimeUnit

#: The connector of a stream that lives in the workspace (CREATE STREAM without WITH).
EMBEDDED = "embedded"
#: The connector of a Spark DataFrame that was registered as a stream.
FRAME = "dataframe"


class StreamMode(Enum):
    """What a later row of a stream says about an earlier one."""

    APPEND = "append"
    """Nothing: rows are only added."""
    VERSIONED = "versioned_kv"
    """A row is its key's newest version, a -1 ends the key."""
    CHANGELOG = "changelog_kv"
    """A row is a version of its key, a -1 takes one away."""


class StreamColumn(BaseModel):
    """A declared column; ``type`` in Spark's SQL."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str


class Index(BaseModel):
    """An index on a stream that changes: its rows are sought by these columns (CREATE INDEX)."""

    model_config = ConfigDict(frozen=True)

    name: str
    columns: tuple[str, ...]


class StreamDef(BaseModel):
    """A stream as the catalogue keeps it."""

    model_config = ConfigDict(frozen=True)

    name: str
    columns: tuple[StreamColumn, ...]
    time_column: str = TP_TIME
    time_unit: TimeUnit = TimeUnit.TIMESTAMP
    delay: int = 0
    has_watermark: bool = False
    connector: str = EMBEDDED
    options: dict[str, str] = {}
    derived: bool = False
    definition: str = ""
    mode: StreamMode = StreamMode.APPEND
    primary_key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    outside: bool = False
    """A table outside, to look up in (CREATE TABLE): it has rows for keys, and no stream of them."""

    @property
    def kind(self) -> str:
        """What messages call it."""
        return "table" if self.outside else "stream"

    @property
    def changes(self) -> bool:
        """Whether later rows replace or take away earlier ones; such a stream has a primary key."""
        return self.mode is not StreamMode.APPEND

    @property
    def event_time(self) -> EventTime:
        """The event-time column and how far out of order it comes."""
        return EventTime(self.time_column, self.time_unit, self.delay, self.has_watermark)

    def column(self, name: str) -> StreamColumn | None:
        """The declared column of that name, compared without case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)
