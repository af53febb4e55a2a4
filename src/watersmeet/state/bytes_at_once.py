"""How many bytes of rows are read, or packed, at once."""

from __future__ import annotations

_USUAL = 16 << 20
#: Rows of 64 KiB or more gain nothing from being many, and are copied several times on the way.
_LARGE_ROW, _OF_LARGE_ROWS = 64 << 10, 8 << 20


def bytes_at_once(nbytes: int, rows: int) -> int:
    """Return how many bytes to take at once of rows of which so many have ``nbytes``."""
    return _OF_LARGE_ROWS if nbytes >= _LARGE_ROW * rows else _USUAL
