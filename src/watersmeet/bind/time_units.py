"""Intervals beside event times that are whole numbers: an interval means as many of the column's units.

    ts - INTERVAL '5' SECONDS               of a time in ms: ts - 5000
    a.ts - b.ts <= INTERVAL '1' MINUTE      of times in s: a.ts - b.ts <= 60

A column says in its node what it counts, so that an expression keeps that wherever it is moved to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from sqlglot import exp

from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.type_groups import INTEGERS

#: Where the node of a column of whole numbers has its ``Count``.
_KEY = "counts"
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
#: Nodes whose value is one of their operand's, or as long.
_KEEPING = (
    *(exp.Paren, exp.Neg, exp.Abs, exp.Window, exp.Max, exp.Min, exp.ArgMax, exp.ArgMin, exp.First, exp.Last),
    *(exp.AnyValue, exp.FirstValue, exp.LastValue, exp.Lag, exp.Lead),
    *(exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Nullif, exp.Avg, exp.Round, exp.Floor, exp.Ceil),
)


@dataclass(frozen=True, slots=True)
class Count:
    """What whole numbers count: units of time, or nothing known (None); as times, or as the distance of two."""

    unit: TimeUnit | None
    is_distance: bool = False


def counting(column: exp.Expr, kind: exp.DataType, unit: TimeUnit | None) -> exp.Expr:
    """The node of a column, which says from now on what the column counts if it is of whole numbers."""
    if kind.is_type(*INTEGERS):
        column.meta[_KEY] = Count(unit)
    return column


def counting_as(column: exp.Expr, value: exp.Expr) -> exp.Expr:
    """The node of a column that holds a value, and counts what that counts."""
    if (found := _count(value)) is not None:
        column.meta[_KEY] = found
    return column


def unit_of(value: exp.Expr) -> TimeUnit | None:
    """The unit of a value that is a time in whole numbers; None for any other value."""
    found = _count(value)
    return None if found is None or found.is_distance else found.unit


def with_numbers(expression: exp.Expr) -> exp.Expr:
    """The resolved expression with numbers of their units in place of intervals beside whole-number times.

    What is given is changed in place.  Raises ``BindError`` for a division by an interval, and for intervals beside
    other whole numbers, beside times that count rows, compared with a time, and beside times of different units.
    """
    expression = expression.transform(_computed, copy=False)
    tests = [each for each in expression.find_all(exp.Between, *_COMPARISONS) if each.find(exp.Interval) is not None]
    for each in (each for test in tests for each in test.find_all(exp.Sub)):
        _check_units(each.this, each.expression)
    for node in reversed(list(expression.walk())):  # from the leaves up
        for counted, length in _pairs(node):
            found = _count(counted)
            if found is not None:
                compares = isinstance(node, (exp.Between, *_COMPARISONS))
                for interval in list(_intervals(length)):
                    _check(interval, found, counted, compares=compares)
                    interval.replace(_number(interval, found.unit))
    for test in tests:
        for other in (test.args.get(name) for name in ("expression", "low", "high")):
            if other is not None:
                _check_units(test.this, other)
    return expression


def _computed(node: exp.Expr) -> exp.Expr:
    """Constant intervals, one of them divided, as one interval, so that it bounds a window; any other node itself."""
    if node.find(exp.Div) is None:
        return node
    if isinstance(node, exp.Div) and _is_length(node.expression):
        raise BindError(
            f"{plain_sql(node)} divides by an interval", hint="divide by a number", position=position_of(node)
        )
    try:
        micros = _micros(node)
    except (UnsupportedError, ArithmeticError):  # months, and a division by zero
        return node
    if micros is None:
        return node
    found = exp.Interval(this=exp.Literal.string(f"{micros}"), unit=exp.var("MICROSECOND"))
    if (position := position_of(node)) is not None:
        found.meta.update(line=position.line, col=position.col)
    return found


def _micros(node: exp.Expr) -> Decimal | None:
    """The microseconds of an interval that is computed of constants, rounded as Spark does; None for any other node."""
    match node:
        case exp.Interval():
            return Decimal(interval_micros(node))
        case exp.Paren():
            return _micros(node.this)
        case exp.Neg():
            length = _micros(node.this)
            return None if length is None else -length
        case exp.Add() | exp.Sub():
            one, other = _micros(node.this), _micros(node.expression)
            if one is None or other is None:
                return None
            return one + other if isinstance(node, exp.Add) else one - other
        case exp.Mul() | exp.Div():
            length, number = _micros(node.this), _number_of(node.expression)
            if length is None and isinstance(node, exp.Mul):
                length, number = _micros(node.expression), _number_of(node.this)
            if length is None or number is None:
                return None
            found = length * number if isinstance(node, exp.Mul) else length / number
            return found.quantize(Decimal(1), ROUND_HALF_UP)
    return None


def _number_of(node: exp.Expr) -> Decimal | None:
    """The value of a literal, in parentheses or negative; None for any other node."""
    match node:
        case exp.Literal() if not node.is_string:
            return Decimal(node.name)
        case exp.Paren() | exp.Neg():
            number = _number_of(node.this)
            return -number if number is not None and isinstance(node, exp.Neg) else number
    return None


def _check_units(one: exp.Expr, other: exp.Expr) -> None:
    """Raise ``BindError`` for whole-number times of different units beside an interval: as numbers they differ."""
    found = list(_units((one, other)))
    if len({unit for _, unit in found}) > 1:
        names = " and ".join(f"{plain_sql(each)} counts {unit.value}" for each, unit in found)
        raise BindError(
            f"{names}: an interval is another number of each",
            hint="WITHIN compares times of any units; or compare times in one unit, as in"
            " b.ts - INTERVAL '5' SECONDS <= a.ts DIV 1000",
            position=position_of(one) or position_of(other),
        )


def _units(nodes: Iterable[exp.Expr]) -> Iterable[tuple[exp.Expr, TimeUnit]]:
    for node in nodes:
        found = _count(node)
        if found is not None and found.unit is not None:
            yield node, found.unit


def _pairs(node: exp.Expr) -> Iterable[tuple[exp.Expr, exp.Expr]]:
    """What a node adds to an interval, or compares with one, and the interval."""
    if isinstance(node, exp.Between):
        sides = [(node.this, node.args["low"]), (node.this, node.args["high"])]
    elif isinstance(node, (exp.Add, *_COMPARISONS)):
        sides = [(node.this, node.expression), (node.expression, node.this)]
    elif isinstance(node, exp.Sub | exp.Mod | exp.IntDiv):
        sides = [(node.this, node.expression)]
    else:
        return []
    return [(counted, length) for counted, length in sides if _is_length(length)]


def _is_length(node: exp.Expr) -> bool:
    """Whether an expression is an interval."""
    match node:
        case exp.Interval():
            return True
        case exp.Paren() | exp.Neg():
            return _is_length(node.this)
        case exp.Add() | exp.Sub():
            return _is_length(node.this) and _is_length(node.expression)
        case exp.Mul():
            return _is_length(node.this) or _is_length(node.expression)
        case exp.Div():
            return _is_length(node.this)
        case exp.Case() | exp.If() | exp.Coalesce() | exp.Greatest() | exp.Least():
            branches = _branches(node)
            return bool(branches) and all(_is_length(each) for each in branches)
    return False


def _intervals(length: exp.Expr) -> Iterator[exp.Interval]:
    """The intervals that a length consists of, without those in conditions."""
    match length:
        case exp.Interval():
            yield length
        case exp.Case() | exp.If() | exp.Coalesce() | exp.Greatest() | exp.Least():
            for branch in _branches(length):
                yield from _intervals(branch)
        case exp.Paren() | exp.Neg():
            yield from _intervals(length.this)
        case exp.Binary():
            yield from _intervals(length.this)
            yield from _intervals(length.expression)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """The values that a node chooses from, without NULL."""
    if isinstance(node, exp.Case):
        values = [each.args["true"] for each in node.args["ifs"]] + [node.args.get("default")]
    elif isinstance(node, exp.If):
        values = [node.args["true"], node.args.get("false")]
    else:
        values = [node.this, *node.expressions]
    return [each for each in values if each is not None and not isinstance(each, exp.Null)]


def _count(node: exp.Expr) -> Count | None:
    """What an expression of whole numbers counts; None where it may be anything else."""
    match node:
        case exp.Column():
            found: Count | None = node.meta.get(_KEY)
            return found
        case exp.Literal():
            return Count(None) if node.is_int else None
        case exp.Cast() | exp.TryCast():
            return _count(node.this) if node.to.is_type(*INTEGERS) else None
        case exp.Case() | exp.If() | exp.Coalesce() | exp.Greatest() | exp.Least():
            branches = _branches(node)
        case exp.Add() | exp.Sub():
            return _sum(isinstance(node, exp.Sub), _count(node.this), _count(node.expression))
        case exp.Mul() | exp.Div() | exp.IntDiv() | exp.Mod():
            return _scaled(node, _count(node.this), _count(node.expression))
        case exp.Count():
            return Count(None)
        case exp.Sum():
            summed = _count(node.this)
            return summed if summed is None or summed.is_distance else Count(None)
        case _ if isinstance(node, _KEEPING):
            return _count(node.this)
        case _:
            return None
    counts = {_count(each) for each in branches if not isinstance(each, exp.Literal | exp.Null)}
    return counts.pop() if len(counts) == 1 else None


def _sum(is_difference: bool, left: Count | None, right: Count | None) -> Count | None:
    if left is not None and left.unit is not None and right is not None and right.unit is not None:
        if left.unit is not right.unit:
            return None
        if is_difference and not left.is_distance and not right.is_distance:
            return Count(left.unit, is_distance=True)
        return Count(left.unit, is_distance=left.is_distance and right.is_distance)
    if left is not None and left.unit is not None:
        return left
    if not is_difference and right is not None and right.unit is not None:
        return right
    return left if left is not None and right is not None else None  # a DATE and a number make a DATE


def _scaled(node: exp.Binary, left: Count | None, right: Count | None) -> Count | None:
    """What a product, a quotient or a remainder counts: a length in the same units, a time, or no unit."""
    if left is None or right is None:
        return None
    if isinstance(node, exp.Mul) and left.is_distance is not right.is_distance and None in (left.unit, right.unit):
        return left if left.is_distance else right
    if isinstance(node, exp.Mul):
        return _floored(node.this, node.expression) or _floored(node.expression, node.this) or Count(None)
    if right.unit is not None or left.unit is None:
        return Count(None)
    if left.is_distance or isinstance(node, exp.Mod):
        return Count(left.unit, is_distance=True)
    return Count(None)


def _floored(whole: exp.Expr, by: exp.Expr) -> Count | None:
    """What ``ts DIV 60 * 60`` or ``floor(ts / 60) * 60`` counts; None for any other product."""
    whole = whole.unnest()
    whole = whole.this.unnest() if isinstance(whole, exp.Floor) else whole
    return _count(whole.this) if isinstance(whole, exp.IntDiv | exp.Div) and whole.expression == by else None


def _check(interval: exp.Interval, count: Count, counted: exp.Expr, *, compares: bool) -> None:
    """Raise ``BindError`` where an interval is no number of what is counted, or is compared with a time."""
    name, position = plain_sql(counted), position_of(interval) or position_of(counted)
    if count.unit is None:
        raise BindError(
            f"{plain_sql(interval)} is a length of time, but {name} is a whole number and no event time",
            hint="write a number in its unit; of a number of seconds, timestamp_seconds(…) is a TIMESTAMP",
            position=position,
        )
    if count.unit is TimeUnit.ROWS:
        raise BindError(
            f"INTERVAL is a length of time, but {name} counts rows", hint="write a number: … + 5", position=position
        )
    if compares and not count.is_distance:
        raise BindError(
            f"{plain_sql(interval)} is a length of time, and {name} is a time",
            hint="compare it with the distance of two times, as in b.ts - a.ts < INTERVAL '5' SECONDS",
            position=position,
        )


def _number(interval: exp.Interval, unit: TimeUnit | None) -> exp.Expr:
    """An interval as a number of units."""
    assert unit is not None
    units = Decimal(interval_micros(interval)) / unit.scale
    number = exp.Literal.number(f"{abs(units).normalize():f}")
    return exp.paren(exp.Neg(this=number), copy=False) if units < 0 else number
