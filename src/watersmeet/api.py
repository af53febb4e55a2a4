"""Joins of Spark streaming DataFrames from Python, without SQL around them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame
from sqlglot import exp

from watersmeet.errors import ConfigError
from watersmeet.results import Stream
from watersmeet.session import Session, connect

How: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
_JOINS: dict[str, str] = {
    "inner": "INNER JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}
Span: TypeAlias = str | timedelta


def interval_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | Sequence[str | tuple[str, str]],
    within: Span | tuple[Span, Span],
    how: How = "inner",
    time: str | tuple[str, str] = "ts",
    delay: Span = "0 seconds",
    grace: Span | None = None,
    where: str | None = None,
    emit: Literal["final", "changelog"] = "final",
    unit: Literal["s", "ms", "us", "row"] = "ms",
) -> DataFrame:
    """Join two streams on keys and on event times that lie within a window of each other.

    A pair matches where the keys are equal, ``where`` is true and ``left.time - before <= right.time <= left.time +
    after``; ``within`` is (before, after), or one span for both.  Out comes a streaming DataFrame with the columns of
    both sides (of the right side's doubled names: ``right_NAME``); semi and anti joins give the left side's only; a
    changelog has ``_tp_delta`` last.

    ``on`` names key columns, or pairs of (left, right) columns.  ``time`` is the event-time column, or one for each
    side: a timestamp, or a whole number of ``unit``.  ``delay`` says how far rows come out of order, ``grace`` for how
    much longer they are accepted.  ``where`` is an SQL condition over ``left`` and ``right``, part of the match.
    Spans are texts such as ``'10 minutes'``, or timedeltas.

    Raises ``ConfigError`` for a join kind or a span that is not known, and what SQL would raise for the rest.

        joined = interval_join(orders, payments, on="order_id", within="10 minutes", how="left", delay="5 seconds")
        joined.writeStream.format("delta").option("checkpointLocation", …).start(…)
    """
    if how not in _JOINS:
        raise ConfigError(f"how = {how!r} is no kind of join", hint=f"use one of {', '.join(_JOINS)}")
    if emit not in ("final", "changelog"):
        raise ConfigError(f"emit = {emit!r} is not known", hint="use 'final' or 'changelog'")
    session: Session = connect(left.sparkSession)
    times = (time, time) if isinstance(time, str) else time
    for name, frame, column in (("left", left, times[0]), ("right", right, times[1])):
        session.register(name, frame, time=column, delay=_words(delay), unit=unit)
    pairs = [on] if isinstance(on, str) else on
    terms = [
        f"`left`.{_name(a)} = `right`.{_name(b)}"
        for a, b in ((pair, pair) if isinstance(pair, str) else pair for pair in pairs)
    ]
    if where is not None:
        terms.append(f"({where})")
    before, after = within if isinstance(within, tuple) else (within, within)
    clauses = f"WITHIN ({_interval(before)}, {_interval(after)})"
    if grace is not None:
        clauses += f" GRACE PERIOD {_interval(grace)}"
    result = session.sql(
        f"SELECT * FROM `left` {_JOINS[how]} `right` ON {' AND '.join(terms)} {clauses} EMIT {emit.upper()}"
    )
    assert isinstance(result, Stream)
    return result.frame


def _name(column: str) -> str:
    return exp.to_identifier(column, quoted=True).sql(dialect="spark")


def _words(span: Span) -> str:
    return f"{span // timedelta(microseconds=1)} microseconds" if isinstance(span, timedelta) else span


def _interval(span: Span) -> str:
    amount, _, unit = _words(span).strip().partition(" ")
    try:
        float(amount)
    except ValueError:
        raise ConfigError(f"{span!r} is no length of time", hint="write '10 minutes', or use a timedelta") from None
    if not unit.strip().isalpha():
        raise ConfigError(f"{span!r} has no unit", hint="write '10 minutes', or use a timedelta")
    return f"INTERVAL '{amount}' {unit.strip().upper()}"
