"""Intervals of several units, as Spark writes them, in the normal form: one number and one unit.

INTERVAL 1 MINUTE 3 SECONDS             INTERVAL '63' SECOND
INTERVAL '1 minute 3 seconds'           INTERVAL '63' SECOND
INTERVAL '1 02:30' DAY TO MINUTE        INTERVAL '1590' MINUTE
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from sqlglot import exp

from watersmeet.expressions.nodes import INTERVAL_UNITS, interval_parts
from watersmeet.expressions.times import UNIT_MICROS

#: Units by the names that SQL has for them.
UNITS = {name: unit for unit in INTERVAL_UNITS for name in (unit, f"{unit}S")}

#: Units that can be added up, in the smallest of them.
_SIZES = (UNIT_MICROS, {"MONTH": 1, "QUARTER": 3, "YEAR": 12})
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
#: The units that may stand around TO, and what separates each from the one before it.
_SPANS = ({"YEAR": "", "MONTH": "-"}, {"DAY": "", "HOUR": " ", "MINUTE": ":", "SECOND": ":"})


def normal(amount: exp.Expr, unit: str) -> exp.Interval:
    """Return the interval of an amount; of a number, in normal form."""
    if isinstance(amount, exp.Neg) and isinstance(amount.this, exp.Literal):
        amount = exp.Literal.string(f"-{amount.this.name}")
    elif isinstance(amount, exp.Literal):
        amount = exp.Literal.string(amount.name)
    return exp.Interval(this=amount, unit=exp.var(unit))


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False


def together(parts: Sequence[exp.Interval]) -> exp.Interval | None:
    """Return one interval for several in normal form, in the smallest of their units.

    None stands for months beside days or what is shorter than these: months have no length in days.
    """
    if len(parts) == 1:
        return parts[0]
    amounts = [interval_parts(each) for each in parts]
    for sizes in _SIZES:
        if all(unit in sizes for _, unit in amounts):
            smallest = min((unit for _, unit in amounts), key=sizes.__getitem__)
            return _of(f"{sum(amount * sizes[unit] for amount, unit in amounts) / sizes[smallest]:f}", smallest)
    return None


def parts_of_text(text: str) -> list[exp.Interval] | None:
    """Return the parts of a text such as ``1 minute 3 seconds``; None for any other text."""
    found = _PART.findall(text)
    if _PART.sub("", text) or not all(unit.upper() in UNITS for _, unit in found):
        return None
    return [_of(amount, UNITS[unit.upper()]) for amount, unit in found] or None


def span_of(first: str, last: str) -> dict[str, str] | None:
    """Return all units from the first to the last, each with what separates it from the one before.

    None stands for two between which there can be no TO.
    """
    for units in _SPANS:
        names = list(units)
        if first in units and last in units and names.index(first) < names.index(last):
            chosen = names[names.index(first) : names.index(last) + 1]
            return {unit: units[unit] if number else "" for number, unit in enumerate(chosen)}
    return None


def shape_of(span: dict[str, str]) -> str:
    """Return how the text of a span looks, such as ``hour:minute:second``."""
    return "".join(separator + unit.lower() for unit, separator in span.items())


def parts_of_span(text: str, span: dict[str, str]) -> list[exp.Interval] | None:
    """Return the parts of a text with a number for each unit of a span, and one sign for all; None for any other."""
    numbers = "".join(rf"{separator}(\d+(?:\.\d+)?)" for separator in span.values())
    if (found := re.fullmatch(rf"\s*([+-]?){numbers}\s*", text)) is None:
        return None
    sign, *amounts = found.groups()
    return [_of(sign + amount, unit) for amount, unit in zip(amounts, span, strict=True)]


def _of(amount: str, unit: str) -> exp.Interval:
    return normal(exp.Literal.string(amount), unit)
