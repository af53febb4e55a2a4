"""Event times in texts, in the units of their columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal


def time_text(time: int, scale: int | None) -> str:
    """Describe an event time; ``scale`` is how many units of ``$t`` the column's unit has (None: a timestamp)."""
    if scale is not None:
        return f"{Decimal(time) / scale:f}"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
    except OverflowError:
        return f"{time} microseconds from 1970"
    return moment.isoformat(sep=" ")
