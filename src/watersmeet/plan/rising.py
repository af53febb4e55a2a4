"""Functions of an event time that never fall while it rises: which these are, and where their value becomes greater.

    date_trunc('HOUR', ts)     is greater than 10:00 from 11:00 on
    CAST(ts AS DATE)           is greater than 5 May from 6 May, 00:00 on
    sn DIV 100                 is greater than 7 from 800 on

A function is taken apart into steps, from the column outwards.  Each maps whole numbers to whole numbers: integers as
they are, timestamps in microseconds, dates in days.  So the least time at which a function exceeds a value is found by
going through the steps backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.type_groups import INSTANTS, INTEGERS
from watersmeet.plan.logical.tree import InputColumn
from watersmeet.plan.rising_steps import DAY, SECOND, Step, cut, floor, multiplied, quotient, shifted, year

_T = exp.DataType.Type
_TIMES = (*INSTANTS, _T.TIMESTAMPNTZ)
#: The largest factor: its product with a 64-bit number has 128 bits at most.
_LARGEST = 2**40
#: SQL doubles at some steps.
_MOST_STEPS = 6
#: The most values of the column with one value of the function: nothing on the way back exceeds 128 bits then.
_WIDEST = 2**62
#: Units to which a time is cut, DuckDB's name of each, and its greatest length.
_UNITS = {
    name: (unit, length)
    for names, unit, length in (
        (("MICROSECOND",), "microseconds", 1),
        (("MILLISECOND",), "milliseconds", 1_000),
        (("SECOND",), "second", SECOND),
        (("MINUTE",), "minute", 60 * SECOND),
        (("HOUR",), "hour", 3_600 * SECOND),
        (("DAY", "DD"), "day", DAY),
        (("WEEK",), "week", 7 * DAY),
        (("MONTH", "MON", "MM"), "month", 31 * DAY),
        (("QUARTER",), "quarter", 92 * DAY),
        (("YEAR", "YYYY", "YY"), "year", 366 * DAY),
    )
    for name in names
}
#: Those of trunc(date, unit); any other gives NULL.
_UNITS_OF_DATES = ("WEEK", "MONTH", "MON", "MM", "QUARTER", "YEAR", "YYYY", "YY")
#: Functions of instants, and of numbers, by how many microseconds the number counts.  unix_timestamp drops a fraction,
#: the others take the second that has begun.
_OF_INSTANTS = (
    (exp.UnixSeconds, floor(SECOND)),
    (exp.StrToUnix, quotient(SECOND)),
    (exp.UnixMillis, floor(1_000)),
    (exp.UnixMicros, floor(1)),
)
_OF_NUMBERS = {"timestamp_seconds": SECOND, "timestamp_millis": 1_000, "timestamp_micros": 1}


@dataclass(frozen=True, slots=True)
class Rising:
    """A function of the column ``name``: its steps, from the column outwards, and the type of its values.

    Of a function that only ``cuts``, a value is a time, or a number of its unit, as the column's, and no more than
    ``reach`` before the least one at which the function is greater.  ``zoned`` is the part that depends on the time
    zone of the session, whose days and hours are taken for those of UTC; None if none does.
    """

    name: str
    type: exp.DataType
    steps: tuple[Step, ...] = ()
    reach: int | None = 1
    zoned: exp.Expr | None = None

    @property
    def cuts(self) -> bool:
        """Whether its values are times as the column's."""
        return self.reach is not None

    def above(self, value: str) -> str:
        """SQL of the least value of the column, as a whole number, at which the function exceeds a ``value`` of its."""
        return self._least_above(as_number(value, self.type))

    def above_own(self, column: str, kind: exp.DataType) -> str:
        """SQL of the same for the function's value at a value of the ``column``, which is of a type."""
        found = as_number(column, kind)
        for step in self.steps:
            found = step.of.replace("{x}", found)
        return self._least_above(found)

    def _least_above(self, value: str) -> str:
        found = f"({value} + 1)"
        for step in reversed(self.steps):
            found = step.least.replace("{x}", found)
        return found

    @property
    def width(self) -> int:
        """The most values of the column, as whole numbers, at which the function has one value."""
        found = 1
        for step in reversed(self.steps):
            found = step.width(found)
        return found

    def then(self, step: Step, kind: str, *, cuts: int | None = None, zoned: exp.Expr | None = None) -> Rising:
        """The function with another step, which may cut a value by up to ``cuts``, and the type of its values then."""
        steps, of = (*self.steps, step), exp.DataType.build(kind, dialect="spark")
        reach = None if cuts is None or self.reach is None else self.reach + cuts
        return replace(self, type=of, steps=steps, reach=reach, zoned=self.zoned or zoned)

    @property
    def is_integer(self) -> bool:
        """Whether its values are plain numbers."""
        return self.type.is_type(*INTEGERS)

    @property
    def kind(self) -> str:
        """The name of the type of its values."""
        return self.type.sql(dialect="spark")


def rising_of(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> Rising | None:
    """A function of one column of whole numbers or times that never falls; None for any other expression."""
    found = _rising(expression, columns)
    return None if found is None or len(found.steps) > _MOST_STEPS or found.width > _WIDEST else found


def as_number(value: str, kind: exp.DataType) -> str:
    """SQL of a value as a whole number."""
    if kind.is_type(*INTEGERS):
        return f"CAST({value} AS HUGEINT)"
    number = f"({value} - DATE '1970-01-01')" if kind.is_type(_T.DATE) else f"epoch_us({value})"
    return f"CAST({number} AS HUGEINT)"


def _rising(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> Rising | None:
    node = expression.unnest()
    match node:
        case exp.Column():
            known = columns.get(node.name)
            is_known = known is not None and known.type.is_type(*INTEGERS, *_TIMES)
            return Rising(node.name, known.type) if known is not None and is_known else None
        case exp.Add() | exp.Sub():
            return _sum(node, columns)
        case exp.Mul():
            inner, factor = _operands(node, columns)
            return None if inner is None or factor is None else inner.then(multiplied(factor), inner.kind)
        case exp.IntDiv():
            inner, by = _operands(node, columns)
            return None if inner is None or by is None else inner.then(quotient(by), "BIGINT")
        case exp.TimestampTrunc():
            return _cut(node, columns)
        case exp.DateTrunc():
            return _cut_date(node, columns)
        case exp.Cast() if node.to.is_type(_T.DATE):
            return _date(node.this, node, columns)
        case exp.TsOrDsToDate() if not node.args.get("format"):
            return _date(node.this, node, columns)
        case exp.Year():
            date = _date(node.this, node, columns)
            return None if date is None else date.then(multiplied(DAY), "TIMESTAMP").then(year(), "INT")
        case _:
            return _of_epoch(node, columns)


def _sum(node: exp.Add | exp.Sub, columns: Mapping[str, InputColumn]) -> Rising | None:
    one, other = node.this.unnest(), node.expression.unnest()
    if isinstance(node, exp.Add) and (isinstance(one, exp.Interval) or _whole(one) is not None):
        one, other = other, one
    inner = _rising(one, columns)
    if inner is None:
        return None
    if isinstance(node, exp.Sub) and isinstance(other, exp.Mod):  # x - x % c
        by = _factor(other.expression)
        if by is None or other.this.unnest() != one or not inner.is_integer:
            return None
        return inner.then(quotient(by), inner.kind, cuts=0).then(multiplied(by), inner.kind, cuts=by - 1)
    by = _shift(other, inner)
    if by is None:
        return None
    has_days = not inner.is_integer and abs(by) >= DAY  # they have 23 or 25 hours in some time zones
    step = shifted(by if isinstance(node, exp.Add) else -by)
    return inner.then(step, inner.kind, zoned=_zoned(inner, node) if has_days else None)


def _shift(node: exp.Expr, inner: Rising) -> int | None:
    """A number, or an interval, that is added to the values of a function."""
    if inner.is_integer:
        return _whole(node)
    if isinstance(node, exp.Interval) and inner.type.is_type(*_TIMES):
        try:
            return interval_micros(node)
        except UnsupportedError:  # months have no fixed length
            return None
    return None


def _operands(node: exp.Mul | exp.IntDiv, columns: Mapping[str, InputColumn]) -> tuple[Rising | None, int | None]:
    """The function of whole numbers, and the factor or divisor."""
    one, other = node.this.unnest(), node.expression.unnest()
    if isinstance(node, exp.Mul) and _whole(one) is not None:
        one, other = other, one
    inner = _rising(one, columns)
    return (inner if inner is not None and inner.is_integer else None), _factor(other)


def _factor(node: exp.Expr) -> int | None:
    found = _whole(node)
    return found if found is not None and found > 0 else None


def _whole(node: exp.Expr) -> int | None:
    """A constant whole number that is not too large: 10, 10L, -5, (5 * 2)."""
    node = node.unnest()
    match node:
        case exp.Literal() if node.is_int:
            found: int | None = int(node.name)
        case exp.Neg():
            inner = _whole(node.this)
            found = None if inner is None else -inner
        case exp.Cast() if node.to.is_type(_T.INT, _T.BIGINT):
            found = _whole(node.this)
        case exp.Mul():
            one, other = _whole(node.this), _whole(node.expression)
            found = None if one is None or other is None else one * other
        case _:
            return None
    return found if found is not None and abs(found) <= _LARGEST else None


def _cut(node: exp.TimestampTrunc, columns: Mapping[str, InputColumn]) -> Rising | None:
    """date_trunc: Spark makes an instant of what it cuts."""
    inner, unit = _rising(node.this, columns), _UNITS.get(node.unit.name.upper()) if node.unit is not None else None
    if inner is None or unit is None or inner.is_integer:
        return None
    if inner.type.is_type(_T.DATE):
        inner = inner.then(multiplied(DAY), "TIMESTAMP")
    cuts = unit[1] - 1 if inner.type.is_type(*INSTANTS) else None
    return inner.then(cut(*unit), "TIMESTAMP", cuts=cuts, zoned=node)


def _cut_date(node: exp.DateTrunc, columns: Mapping[str, InputColumn]) -> Rising | None:
    """trunc: a date, cut."""
    unit = node.args["unit"].name.upper()
    date = _date(node.this, node, columns)
    if date is None or unit not in _UNITS_OF_DATES:
        return None
    return date.then(multiplied(DAY), "TIMESTAMP").then(cut(*_UNITS[unit]), "TIMESTAMP").then(floor(DAY), "DATE")


def _date(node: exp.Expr, whole: exp.Expr, columns: Mapping[str, InputColumn]) -> Rising | None:
    """The date of a time, or a date as it is."""
    inner = _rising(node, columns)
    if inner is None or inner.is_integer:
        return None
    return inner if inner.type.is_type(_T.DATE) else inner.then(floor(DAY), "DATE", zoned=_zoned(inner, whole))


def _of_epoch(node: exp.Expr, columns: Mapping[str, InputColumn]) -> Rising | None:
    """The whole seconds, milliseconds or microseconds of an instant since 1970, or the instant of such a number."""
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 1:
        micros, inner = _OF_NUMBERS.get(node.name.lower()), _rising(node.expressions[0], columns)
        found = inner is not None and micros is not None and inner.is_integer
        return inner.then(multiplied(micros), "TIMESTAMP") if found and inner and micros else None
    is_cast = isinstance(node, exp.Cast) and node.to.is_type(_T.BIGINT)
    step = floor(SECOND) if is_cast else next((each for kind, each in _OF_INSTANTS if isinstance(node, kind)), None)
    inner = None if step is None else _rising(node.this, columns)
    if step is None or inner is None:
        return None
    if is_cast and inner.is_integer:
        return replace(inner, type=exp.DataType.build("BIGINT"))
    return inner.then(step, "BIGINT") if inner.type.is_type(*INSTANTS) else None


def _zoned(inner: Rising, whole: exp.Expr) -> exp.Expr | None:
    """The expression, if the session's time zone decides on it: days of an instant."""
    return whole if inner.type.is_type(*INSTANTS) else None
