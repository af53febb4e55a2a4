"""Expression nodes that the parser adds to sqlglot's.

None of them can be rendered: sqlglot's generators raise ValueError on unknown nodes, so no clause gets lost
silently on the way to Spark SQL.

An interval in a clause (WITHIN, GRACE PERIOD, ALLOWED LATENESS, WATERMARK) has the normal form
``exp.Interval(this=string literal of one number, unit=exp.Var)`` with a unit from ``INTERVAL_UNITS``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from sqlglot import exp

INTERVAL_UNITS = (
    "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR",
)  # fmt: skip


class Within(exp.Expression):
    """The window of a join: the right row lies at most ``this`` before the left one and ``expression`` after it.

    Both are intervals in normal form. With t the left row's time and u the right row's,
    t - this <= u <= t + expression.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class StreamJoin(exp.Join):
    """A join with a clause specific to streams: ``within``, ``grace``, ``lateness`` or ``match_condition``."""

    arg_types: ClassVar[dict[str, bool]] = {**exp.Join.arg_types, "within": False, "grace": False, "lateness": False}


class SystemTime(exp.Version):
    """FOR SYSTEM_TIME AS OF, in the arg ``version`` of an ``exp.Table``.

    ``expression`` is the time (a column of the other side, or PROCTIME()); ``versioned_on`` is the identifier of
    VERSIONED ON, if present.
    """

    arg_types: ClassVar[dict[str, bool]] = {**exp.Version.arg_types, "versioned_on": False}


class WindowTable(exp.Expression):
    """TUMBLE, HOP, CUMULATE or SESSION (the ``name``) in FROM: its rows, with the bounds of their windows.

    ``this`` is the relation, ``time`` the identifier of DESCRIPTOR, and ``expressions`` are the lengths: intervals, or
    numbers of rows. Sessions are of each value of ``partition_by``, a list of expressions. If ``hidden``, ``*`` leaves
    the bounds out.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "name": True,
        "time": True,
        "expressions": True,
        "partition_by": False,
        "hidden": False,
    }


#: The functions in FROM that give rows their windows, and their lengths in the order of their arguments.
WINDOW_TABLES = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "CUMULATE": ("step", "size", "offset"),
    "SESSION": ("gap",),
}


def interval_parts(interval: exp.Interval) -> tuple[Decimal, str]:
    """Return the amount and the unit of an interval in normal form; the unit may be one without a fixed length."""
    return Decimal(interval.this.name), interval.args["unit"].name
