"""The definition of a stream: columns, event time, connector, and how its rows change."""

from __future__ import annotations

import re
from enum import Enum

from pydantic import BaseModel, ConfigDict

from watersmeet.columns import RECORD_COLUMNS, TP_TIME
from watersmeet.expressions.event_time import EventTime, TimeUnit

#: The connector of a stream that is stored in the workspace (CREATE STREAM without WITH).
EMBEDDED = "embedded"
#: The connector of a Kafka topic.
KAFKA = "kafka"
#: The connector of a Spark DataFrame that was registered as a stream.
FRAME = "dataframe"


class StreamMode(Enum):
    """What a later row of a stream says about an earlier one."""

    APPEND = "append"
    """Nothing: rows are only added."""
    VERSIONED = "versioned_kv"
    """A row is the newest version of its key; a -1 deletes the key."""
    CHANGELOG = "changelog_kv"
    """A row is a version of its key; a -1 retracts one."""


class StreamColumn(BaseModel):
    """A declared column; ``type`` is written as in Spark SQL."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str


class OrderTerm(BaseModel):
    """A term of ``ordered_by``: an expression over a stream's columns, in Spark SQL."""

    model_config = ConfigDict(frozen=True)

    expression: str
    descending: bool = False


class Index(BaseModel):
    """An index on a changing stream (CREATE INDEX): queries can look up its rows by these columns."""

    model_config = ConfigDict(frozen=True)

    name: str
    columns: tuple[str, ...]


class StreamDef(BaseModel):
    """A stream or table, as the catalogue stores it."""

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
    ordered_by: tuple[OrderTerm, ...] = ()
    """The order in which rows arrive, beside the event time; ``order_unit`` is what its first column counts."""
    order_unit: TimeUnit | None = None
    outside: bool = False
    """Whether it is an external table that lookup joins query (CREATE TABLE), not a stream."""

    @property
    def kind(self) -> str:
        """The word for it in messages."""
        return "table" if self.outside else "stream"

    @property
    def changes(self) -> bool:
        """Whether later rows replace or retract earlier ones; such a stream has a primary key."""
        return self.mode is not StreamMode.APPEND

    @property
    def event_time(self) -> EventTime:
        """The event-time column and how far out of order its rows may come."""
        return EventTime(self.time_column, self.time_unit, self.delay, self.has_watermark)

    @property
    def lead(self) -> EventTime | None:
        """The first column of the declared order, as a time without a delay; None where it is the event time."""
        if self.order_unit is None or self.ordered_by[0].expression == self.time_column:
            return None
        return EventTime(self.ordered_by[0].expression, self.order_unit)

    @property
    def order_text(self) -> str:
        """The declared order, as it would be written."""
        lead, *others = self.ordered_by
        name = lead.expression if re.fullmatch(r"[A-Za-z_]\w*", lead.expression) else f"`{lead.expression}`"
        return ", ".join([name, *(f"{each.expression}{' DESC' if each.descending else ''}" for each in others)])

    @property
    def hidden(self) -> dict[str, str]:
        """The columns that ``*`` leaves out, with their types; ``_tp_delta`` is not a value of the row.

        A changing stream lacks those of its records: a delete has another offset than the row that it deletes, and so
        would not cancel it.
        """
        if self.outside:
            return {}
        found = {} if self.column(TP_TIME) is not None else {TP_TIME: "TIMESTAMP"}
        return found if self.connector != KAFKA or self.changes else {**found, **RECORD_COLUMNS}

    def column(self, name: str) -> StreamColumn | None:
        """The declared column of that name, ignoring case."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)
