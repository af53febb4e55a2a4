"""Event times: their column, and how they map to internal event time.

Internal event time is an int64. It counts microseconds since the epoch for timestamps and for integers in seconds,
milliseconds or microseconds, and rows for plain sequence numbers (unit ``row``). A day is 24 hours; months and
years have no fixed length and are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.nodes import interval_parts
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.type_groups import INSTANTS

_LONGEST = 2**60  # some 36,000 years
_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
#: Units of fixed length, in SQL and in Python.
INTERVAL_UNITS = tuple(_MICROS)


class TimeUnit(Enum):
    """What an event-time column counts."""

    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    ROWS = "row"

    @property
    def scale(self) -> int:
        """Units of internal event time in one unit of the column."""
        return {TimeUnit.SECONDS: 1_000_000, TimeUnit.MILLISECONDS: 1_000}.get(self, 1)

    @classmethod
    def of(cls, kind: exp.DataType) -> TimeUnit | None:
        """Return the default unit of a column by its type; None if the type cannot be an event time."""
        if kind.is_type(exp.DataType.Type.TIMESTAMPNTZ):
            return cls.TIMESTAMP_NTZ
        if kind.is_type(*INSTANTS):
            return cls.TIMESTAMP
        return cls.MILLISECONDS if kind.is_type(*exp.DataType.INTEGER_TYPES) else None

    @property
    def is_integer(self) -> bool:
        """Whether the column is an integer."""
        return self not in (TimeUnit.TIMESTAMP, TimeUnit.TIMESTAMP_NTZ)


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event-time column of a stream, its unit, and the watermark delay in units of internal event time."""

    column: str
    unit: TimeUnit
    delay: int = 0
    declared: bool = True


def interval_micros(interval: exp.Expr) -> int:
    """Return the length of an interval in microseconds.

    Raises ``UnsupportedError`` for months and years, and for anything but one number and a unit.
    """
    if not isinstance(interval, exp.Interval):
        raise UnsupportedError(
            f"an interval is needed here, not {interval.sql(dialect='spark')}",
            hint="write INTERVAL '10' MINUTES",
            position=position_of(interval),
        )
    try:
        amount, unit = interval_parts(interval)
        unit = unit.upper().removesuffix("S")
        micros = amount * _MICROS[unit]
    except (KeyError, ArithmeticError, ValueError, AttributeError) as error:
        raise UnsupportedError(
            f"{interval.sql(dialect='spark')} has no fixed length",
            detail=f"allowed units: {', '.join(unit for unit in _MICROS)}",
            hint="a day is 24 hours here; for a month write the days",
            position=position_of(interval),
        ) from error
    if abs(micros) > _LONGEST:
        raise UnsupportedError(f"{interval.sql(dialect='spark')} is too long", position=position_of(interval))
    if micros != int(micros):
        raise UnsupportedError(
            f"{interval.sql(dialect='spark')} is not a whole number of microseconds", position=position_of(interval)
        )
    return int(micros)


def span_text(amount: int, unit: TimeUnit) -> str:
    """Format a length of internal event time for messages."""
    if unit is TimeUnit.ROWS:
        return f"{amount} rows"
    seconds = amount / 1_000_000
    for name, length in (("h", 3600), ("min", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:g} {name}"
    return f"{seconds:g} s"
