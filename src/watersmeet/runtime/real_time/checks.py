"""What cannot run in real time, said before anything starts, with what can."""

from __future__ import annotations

from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import UnsupportedError
from watersmeet.plan.physical_plan import PhysicalPlan

_SOURCES = ("kafka",)
_INSTEAD = "leave out mode = 'real_time' (or --real-time): micro-batches take it"


def check_real_time(plan: PhysicalPlan, target: StreamDef, is_continuous: bool) -> None:
    """Raise ``UnsupportedError`` for sources, targets and ways to run that real time does not have."""
    if not is_continuous:
        raise UnsupportedError(
            "a query in real time has no end: --bounded and --drain are for micro-batches", hint=_INSTEAD
        )
    for part in plan.inputs:
        if part.input.stream.connector not in _SOURCES:
            raise UnsupportedError(
                f"{part.input.stream.name} ({part.input.stream.connector}) cannot be followed in real time, only"
                f" streams of {', '.join(_SOURCES)}",
                hint=_INSTEAD,
            )
    if target.derived:
        raise UnsupportedError(
            f"{target.name} (CREATE STREAM … AS) stores the frontier with each batch, which real time does not have",
            hint=f"INSERT INTO a stream of kafka, and read that; or {_INSTEAD}",
        )
