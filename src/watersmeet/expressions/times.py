"""Times in SQL: the length of an interval, and the unit of an event time by its type.

A day is 24 hours; months and years have no fixed length and are refused.
"""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.nodes import interval_parts
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.type_groups import INSTANTS

_LONGEST = 2**60  # some 36,000 years
#: Units of fixed length, in SQL and in Python.
UNIT_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}


def time_after(time: exp.Expr, distance: int, unit: TimeUnit) -> exp.Expr:
    """Return the event time ``distance`` after another one, in units of internal event time, in its own type."""
    if unit.is_integer:
        length: exp.Expr = exp.Literal.number(abs(distance) // unit.scale)
    else:
        length = exp.Interval(this=exp.Literal.string(str(abs(distance))), unit=exp.var("MICROSECOND"))
    return (exp.Add if distance > 0 else exp.Sub)(this=time.copy(), expression=length)


def in_units(time: exp.Expr, unit: TimeUnit) -> exp.Expr:
    """A whole number that is a time, with numbers of its unit in place of intervals.

    Raises ``UnsupportedError`` for an interval that is no whole number of the unit, and for rows, which have no length.
    """

    def number(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Interval):
            return node
        micros = interval_micros(node)
        if unit is TimeUnit.ROWS or micros % unit.scale:
            raise UnsupportedError(
                f"{node.sql(dialect='spark')} is no whole number of the time's unit, {unit.value}",
                hint="write a number in that unit, as in ts - 10",
                position=position_of(node),
            )
        count = exp.Literal.number(abs(micros) // unit.scale)
        return exp.paren(exp.Neg(this=count), copy=False) if micros < 0 else count

    return time.transform(number)


def unit_of_type(kind: exp.DataType) -> TimeUnit | None:
    """Return the default unit of an event time by its column's type; None if the type cannot be an event time."""
    if kind.is_type(exp.DataType.Type.TIMESTAMPNTZ):
        return TimeUnit.TIMESTAMP_NTZ
    if kind.is_type(*INSTANTS):
        return TimeUnit.TIMESTAMP
    return TimeUnit.MILLISECONDS if kind.is_type(*exp.DataType.INTEGER_TYPES) else None


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
        micros = amount * UNIT_MICROS[unit]
    except (KeyError, ArithmeticError, ValueError, AttributeError) as error:
        raise UnsupportedError(
            f"{interval.sql(dialect='spark')} has no fixed length",
            detail=f"allowed units: {', '.join(UNIT_MICROS)}",
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
