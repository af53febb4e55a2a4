"""Sizes in bytes as users write them, such as ``'600MB'`` or ``'1.5 GiB'``."""

from __future__ import annotations

import re
from decimal import Decimal

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size(value: object) -> object:
    """Convert a size in text into bytes, and return values that are not text unchanged.

    ``kB``, ``MB``, ``GB`` and ``TB`` are powers of 1000; ``KiB``, ``MiB``, ``GiB`` and ``TiB`` powers of 1024.

    Raises ``ValueError`` for text that is not a size.
    """
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None or (found[3] and not found[2]):
        raise ValueError("write a number and a unit, such as '600MB' or '2GiB'")
    number, unit, is_binary = found[1], found[2].upper(), bool(found[3])
    return int(Decimal(number) * (1024 if is_binary else 1000) ** _POWERS[unit])


def size_text(size: int) -> str:
    """Return a size in the largest unit of which it has one.

    >>> size_text(600_000_000), size_text(2_500_000_000), size_text(12)
    ('600 MB', '2.5 GB', '12 bytes')
    """
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("kB", 1)):
        if size >= 1000**power:
            return f"{round(size / 1000**power, 1):g} {unit}"
    return f"{size} byte{'' if size == 1 else 's'}"
