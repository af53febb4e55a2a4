"""Durations as users write them, such as ``'30 seconds'``, ``'5 m'`` or ``'200ms'``."""

from __future__ import annotations

import re

_DURATION = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_SECONDS = {
    "MICROSECOND": 0.000001,
    "MILLISECOND": 0.001,
    "SECOND": 1.0,
    "MINUTE": 60.0,
    "HOUR": 3_600.0,
    "DAY": 86_400.0,
    "WEEK": 604_800.0,
}
_ABBREVIATIONS = {"US": "MICROSECOND", "MS": "MILLISECOND", "S": "SECOND", "M": "MINUTE", "H": "HOUR"}


def split_duration(text: str) -> tuple[str, str]:
    """The number and the unit in a text, the unit as ``unit_of`` returns it, or upper case if that is None.

    A text without a unit has the unit ``""``.  Raises ``ValueError`` if the text is not a number and a word.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError("write a number and a unit, such as '30 seconds'")
    return found[1], unit_of(found[2]) or found[2].upper()


def unit_of(word: str) -> str | None:
    """The unit of time that a word names (``'s'``, ``'seconds'``: ``SECOND``); None for other words."""
    upper = word.upper()
    for name in (upper, upper.removesuffix("S")):
        if name in _SECONDS:
            return name
    return _ABBREVIATIONS.get(upper)


def seconds(value: object) -> object:
    """Convert a duration in text into seconds, and return values that are not text unchanged; ``'0'`` needs no unit.

    Raises ``ValueError`` for text that is not a duration, and for a negative one.
    """
    if not isinstance(value, str):
        return value
    number, unit = split_duration(value)
    if not unit and float(number) == 0:
        return 0.0
    if unit not in _SECONDS:
        raise ValueError("write a number and a unit, such as '30 seconds'")
    if number.startswith("-"):
        raise ValueError("a duration is not negative; write a number and a unit, such as '30 seconds'")
    return float(number) * _SECONDS[unit]


def duration_text(seconds: float) -> str:
    """A duration in words, in the largest unit of which it is a whole number: ``10 minutes``, ``90 seconds``."""
    whole = [name for name, size in _SECONDS.items() if size > 1 and seconds >= size and seconds % size == 0]
    unit = whole[-1] if whole else "SECOND"
    number = seconds / _SECONDS[unit]
    return f"{number:g} {unit.lower()}{'' if number == 1 else 's'}"
