"""What a query itself says that cannot run in real time: its streams and its settings."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.errors import Position, UnsupportedError
from watersmeet.plan.physical_plan import PhysicalPlan

#: What a query can do that cannot run in real time.
INSTEAD = "leave out mode = 'real_time' (or --real-time): micro-batches take it"
_SOURCES = ("kafka",)


def check_live(plan: PhysicalPlan, positions: Mapping[str, Position]) -> None:
    """Raise ``UnsupportedError`` if a query in real time has a trigger, or reads what has no rows as they come.

    ``positions`` are those of the settings.
    """
    settings = plan.query.settings
    if not settings.is_real_time:
        return
    if settings.trigger:
        raise UnsupportedError(
            "trigger is the time between micro-batches, and real time has none",
            hint="set epoch instead of trigger",
            position=positions.get("trigger"),
        )
    for part in plan.streams:
        if part.input.stream.connector not in _SOURCES:
            raise UnsupportedError(
                f"{part.input.stream.name} ({part.input.stream.connector}) cannot be followed in real time: only"
                f" streams of {', '.join(_SOURCES)} can",
                hint=INSTEAD,
                position=positions.get("mode"),
            )
