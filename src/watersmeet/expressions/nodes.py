"""Expression nodes of our own, beside sqlglot's.

None of them can be rendered: sqlglot's generators raise ValueError on a node they do not know, so a clause
cannot get lost on the way to Spark SQL without notice.

An interval in a clause (WITHIN, GRACE PERIOD, WATERMARK) has the normal form
``exp.Interval(this=string literal that holds one number, unit=exp.Var)``, its unit a word of ``INTERVAL_UNITS``.
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
    """A join with a clause that only streams have: ``within``, ``grace`` or ``match_condition`` (ASOF)."""

    arg_types: ClassVar[dict[str, bool]] = {**exp.Join.arg_types, "within": False, "grace": False}


class SystemTime(exp.Version):
    """FOR SYSTEM_TIME AS OF, in the arg ``version`` of an ``exp.Table``.

    ``expression`` is the time asked for (a column of the other side, or PROCTIME()), ``versioned_on`` the
    identifier of VERSIONED ON, if it was given.
    """

    arg_types: ClassVar[dict[str, bool]] = {**exp.Version.arg_types, "versioned_on": False}


def interval_parts(interval: exp.Interval) -> tuple[Decimal, str]:
    """The amount and the unit of an interval in normal form; months and years too, though of no fixed length."""
    return Decimal(interval.this.name), interval.args["unit"].name
