"""``join_ttl``: how long rows stay in joins without a window."""

from __future__ import annotations

from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Join, changing, joins_of

SETTING = "join_ttl"


def check_join_ttl(query: LogicalQuery) -> None:
    """Raise ``ConfigError`` where the setting bounds no join, ``UnsupportedError`` for streams that count rows."""
    if query.settings.join_ttl is None:
        return
    position = query.text.settings_positions.get(SETTING)
    if all(join.condition.ttl is None for join in joins_of(query.root)):
        raise ConfigError(
            f"{SETTING} is for joins of append-only streams of which a side has no window, and there is none",
            detail=_why_none(query),
            hint="leave it out",
            position=position,
        )
    if (counting := query.row_counting_input) is not None:
        raise UnsupportedError(
            f"{SETTING} is a duration, but {counting.alias} counts rows",
            hint="write a window of inequalities: a.sn >= b.sn AND a.sn < b.sn + 10",
            position=position,
        )


def expiring_refused(join: Join, query: LogicalQuery) -> UnsupportedError:
    """The error for a join over results that may be retracted, whose rows would expire."""
    return UnsupportedError(
        f"{SETTING}: results of the join below may be retracted, and the retraction of a row that has expired would "
        "find nothing",
        hint="use EMIT FINAL, where results are given once and for all",
        position=query.text.settings_positions.get(SETTING, join.position),
    )


def _why_none(query: LogicalQuery) -> str | None:
    if changed := changing(query.root):
        return f"the rows of {changed[0].stream.name} change: the newest of each key stays, others leave when replaced"
    return "windows bound all joins" if any(joins_of(query.root)) else None
