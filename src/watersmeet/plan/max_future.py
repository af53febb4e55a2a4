"""How far an event time may lie after the arrival of its row: one row from the far future must not make others late."""

from __future__ import annotations

from watersmeet.columns import TP_TIME
from watersmeet.errors import ConfigError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Input

SETTING = "max_future"
#: For timestamps of streams whose records carry the time at which they were sent.
DEFAULT_SECONDS = 86_400.0
_SENT_AT = ("kafka",)


def max_future(input: Input, query: LogicalQuery) -> int | None:
    """The most that an event time may be after its row's arrival, in microseconds; None where it may be any time."""
    settings = query.settings
    if settings.max_future == "none" or not _is_comparable(input):
        return None
    if settings.max_future is not None:
        return round(settings.max_future * 1_000_000)
    by_default = input.stream.connector in _SENT_AT and not input.time.unit.is_integer and not settings.deterministic
    return round(DEFAULT_SECONDS * 1_000_000) if by_default else None


def check_max_future(query: LogicalQuery) -> None:
    """Raise ``ConfigError`` where the setting would apply to no stream."""
    if not isinstance(query.settings.max_future, float) or any(map(_is_comparable, query.inputs)):
        return
    raise ConfigError(
        f"{SETTING} compares event times with times of arrival, but no stream here has both",
        hint="leave it out: for sequence numbers, declared orders and times of arrival there is no such limit",
        position=query.text.settings_positions.get(SETTING),
    )


def _is_comparable(input: Input) -> bool:
    """Whether rows are dated by a time since 1970 that is not that of their arrival, which is known."""
    stream = input.stream
    return (
        input.dated_by is None
        and input.results is None
        and input.time.unit is not TimeUnit.ROWS
        and stream.column(TP_TIME) is None
        and input.time.column != TP_TIME
        and not stream.outside
        and not stream.derived
    )
