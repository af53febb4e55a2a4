"""Joins of Spark streaming DataFrames from Python, without SQL around them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame
from sqlglot import exp

from watersmeet.catalog.streams import StreamMode
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.expressions.times import INTERVAL_UNITS
from watersmeet.session.results import Stream
from watersmeet.session.session import Session, connect
from watersmeet.settings.durations import split_duration

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
Keys: TypeAlias = str | Sequence[str | tuple[str, str]]
Unit: TypeAlias = Literal["s", "ms", "us", "row"]
Emit: TypeAlias = Literal["final", "changelog"]
#: The comparison of MATCH_CONDITION, and the distance that a tolerance bounds.
_NEARNESS = {
    "backward": ("{one} >{equal} {other}", "{one} - {other}"),
    "forward": ("{one} <{equal} {other}", "{other} - {one}"),
    "nearest": ("NEAREST({one}, {other})", "ABS({one} - {other})"),
}


def interval_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Keys,
    within: Span | tuple[Span, Span],
    how: How = "inner",
    time: str | tuple[str, str] = "ts",
    delay: Span = "0 seconds",
    grace: Span | None = None,
    where: str | None = None,
    emit: Emit = "final",
    unit: Unit = "ms",
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
    before, after = within if isinstance(within, tuple) else (within, within)
    clauses = f"WITHIN ({_interval(before)}, {_interval(after)})"
    if grace is not None:
        clauses += f" GRACE PERIOD {_interval(grace)}"
    session = _session(left, right, time, delay, unit)
    return _frame(session, f"{_JOINS[how]} `right` ON {_condition(on, where)} {clauses} {_emit(emit)}")


def asof_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Keys,
    direction: Literal["backward", "forward", "nearest"] = "backward",
    strict: bool = False,
    tolerance: Span | None = None,
    how: Literal["inner", "left"] = "inner",
    time: str | tuple[str, str] = "ts",
    delay: Span = "0 seconds",
    where: str | None = None,
    emit: Emit = "final",
    unit: Unit = "ms",
    primary_key: str | Sequence[str] = (),
    order: str | None = None,
) -> DataFrame:
    """Join each row of a stream with the one row of another, of the same key, that is nearest in time.

    ``direction`` says where it is looked for: backward is the newest at or before the left row's time, forward the
    oldest at or after it, nearest the nearer of both; ``strict`` leaves out equal times, ``tolerance`` what lies
    further away.  ``where`` tests the row that was found, it does not choose another.  A row comes out once no nearer
    one can come; with ``emit="changelog"`` at once, to be corrected where one comes.  Of right rows with one key and
    time the last by the column ``order`` counts, without one always the same.  With a ``primary_key`` a right row
    whose ``_tp_delta`` is -1 takes another away (mode changelog_kv).  Everything else is as for ``interval_join``.

    Raises ``ConfigError`` for a direction, kind or span that is not known, and what SQL would raise for the rest.

        quoted = asof_join(trades, quotes, on="symbol", tolerance="5 seconds", how="left", delay="2 seconds")
    """
    if direction not in _NEARNESS:
        raise ConfigError(f"direction = {direction!r} is not known", hint=f"use one of {', '.join(_NEARNESS)}")
    if strict and direction == "nearest":
        raise ConfigError("strict does not go with direction = 'nearest'", hint="leave it out")
    _check_as_of(how)
    one, other = (f"`{side}`.{_name(column)}" for side, column in zip(("left", "right"), _pair(time), strict=True))
    nearness, distance = _NEARNESS[direction]
    match = nearness.format(one=one, other=other, equal="" if strict else "=")
    if tolerance is not None:
        span = _rows(tolerance) if unit == "row" else _interval(tolerance)
        match += f" AND {distance.format(one=one, other=other)} <= {span}"
    session = _session(left, right, time, delay, unit, "changelog_kv" if primary_key else "append", primary_key, order)
    join = "ASOF JOIN" if how == "inner" else "LEFT ASOF JOIN"
    return _frame(session, f"{join} `right` MATCH_CONDITION ({match}) ON {_condition(on, where)} {_emit(emit)}")


def temporal_join(
    stream: DataFrame,
    table: DataFrame,
    *,
    on: Keys,
    how: Literal["inner", "left"] = "inner",
    time: str | tuple[str, str] = "ts",
    delay: Span = "0 seconds",
    where: str | None = None,
    as_of: Literal["event", "now"] = "event",
    wait: bool = True,
    emit: Emit = "final",
    unit: Unit = "ms",
    mode: Literal["append", "versioned_kv", "changelog_kv"] = "append",
    primary_key: str | Sequence[str] = (),
    order: str | None = None,
) -> DataFrame:
    """Join each row of a stream with the version of a table that held at the row's event time, or that is known now.

    ``table`` is a stream of versions, or a batch DataFrame of all of them: each holds from its event time to that of
    the next one of the key.  With a ``mode`` and a ``primary_key`` versions may be replaced and deleted (a row whose
    ``_tp_delta`` is -1); a row then meets all that hold and have its key.

    Where it asks ``as_of`` the event's time, a row comes out once no version can come that it would meet.  Without
    ``wait`` it is joined at once with the versions known, and never revised, as it is as of ``"now"``; with
    ``emit="changelog"`` at once, to be corrected.  Everything else is as for ``asof_join``.

        priced = temporal_join(orders, rates, on="currency", how="left", time=("ordered_at", "valid_from"))
    """
    _check_as_of(how)
    if as_of not in ("event", "now"):
        raise ConfigError(f"as_of = {as_of!r} is not known", hint="use 'event' or 'now'")
    moment = "PROCTIME()" if as_of == "now" else f"`left`.{_name(_pair(time)[0])}"
    settings = "" if wait else " SETTINGS temporal_wait = 'none'"
    session = _session(stream, table, time, delay, unit, mode, primary_key, order)
    join = f"{_JOINS[how]} `right` FOR SYSTEM_TIME AS OF {moment} ON {_condition(on, where)}"
    return _frame(session, f"{join} {_emit(emit)}{settings}")


def changelog_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Keys,
    left_key: str | Sequence[str] = (),
    right_key: str | Sequence[str] = (),
    how: How = "inner",
    time: str | tuple[str, str] | None = None,
    delay: Span | None = None,
    where: str | None = None,
    unit: Unit = "ms",
    mode: Literal["versioned_kv", "changelog_kv"] = "versioned_kv",
    order: str | tuple[str, str] | None = None,
    max_state_bytes: int | None = None,
    by: str | Sequence[str] = (),
    aggregates: Mapping[str, str] | None = None,
) -> DataFrame:
    """Join two streams whose rows change: at every moment the join of the newest rows, given as corrections.

    ``left_key`` and ``right_key`` are the primary keys: a row takes the place of the one before it with its key, or
    with a ``_tp_delta`` of -1 takes it away.  A side without one only appends rows; all of them are kept then, and the
    query stops, with nothing lost, where they reach ``max_state_bytes`` (512 MiB by default).  Out comes a changelog:
    the columns of both sides as for ``interval_join``, and ``_tp_delta``, +1 for what holds now and -1 for what does
    not any more.

    Changes of one key follow each other by event time (``time``; without one by arrival), then by the column ``order``.
    With a ``delay`` changes that come later than that are late, and not taken.

    With ``aggregates`` the corrections are those of the groups ``by`` of the joined rows, as ``aggregate`` gives them;
    in both, columns of one side may need its name before them: ``"`right`.tier"``.

    Raises ``ConfigError`` for a join kind that is not known, and what SQL would raise for the rest.

        tiers = changelog_join(orders, customers, on=[("customer_id", "id")], left_key="order_id", right_key="id",
                               how="left", time="changed_at")
    """
    if how not in _JOINS:
        raise ConfigError(f"how = {how!r} is no kind of join", hint=f"use one of {', '.join(_JOINS)}")
    if by and aggregates is None:
        raise ConfigError("by is given without aggregates", hint="name them: aggregates={'n': 'count(*)'}")
    session = connect(left.sparkSession)
    times, orders = (_pair(name) if name is not None else (None, None) for name in (time, order))
    keys = (_columns(left_key), _columns(right_key))
    for name, frame, key, at, place in zip(("left", "right"), (left, right), keys, times, orders, strict=True):
        changes = mode if key else StreamMode.APPEND.value
        words = None if delay is None else _words(delay)
        session.register(name, frame, time=at, delay=words, unit=unit, mode=changes, primary_key=key, order=place)
    settings = f" SETTINGS join_max_buffered_bytes = {int(max_state_bytes)}" if max_state_bytes is not None else ""
    join = f"{_JOINS[how]} `right` ON {_condition(on, where)}"
    if aggregates is None:
        return _frame(session, f"{join} EMIT CHANGELOG{settings}")
    columns, groups = _grouped(_columns(by), aggregates)
    return _select(session, f"SELECT {columns} FROM `left` {join}{groups} EMIT CHANGELOG{settings}")


def aggregate(
    frame: DataFrame,
    *,
    aggregates: Mapping[str, str],
    by: str | Sequence[str] = (),
    where: str | None = None,
    having: str | None = None,
    primary_key: str | Sequence[str] = (),
    mode: Literal["versioned_kv", "changelog_kv"] = "versioned_kv",
    time: str | None = None,
    unit: Unit = "ms",
    order: str | None = None,
) -> DataFrame:
    """Aggregate a stream, by groups or as a whole, and keep the results right as its rows change.

    ``aggregates`` are SQL by the name of their column (``{"n": "count(*)", "total": "sum(amount)"}``), ``by`` the
    columns that make a group, ``where`` and ``having`` conditions over rows and over groups.  Out comes a changelog:
    for each group that changes the row of before with a ``_tp_delta`` of -1, and the new one with +1.

    With a ``primary_key`` rows take each other's place; ``mode``, ``time`` and ``order`` are as for ``changelog_join``.

    Raises ``ConfigError`` where there are no aggregates, and what SQL would raise for the rest.

        totals = aggregate(orders, by="customer", aggregates={"n": "count(*)", "total": "sum(amount)"},
                           primary_key="order_id")
    """
    session = connect(frame.sparkSession)
    key = _columns(primary_key)
    changes = mode if key else StreamMode.APPEND.value
    session.register("rows", frame, time=time, delay=None, unit=unit, mode=changes, primary_key=key, order=order)
    columns, groups = _grouped(_columns(by), aggregates)
    condition = "" if where is None else f" WHERE ({where})"
    tested = "" if having is None else f" HAVING {having}"
    return _select(session, f"SELECT {columns} FROM `rows`{condition}{groups}{tested} EMIT CHANGELOG")


def _grouped(by: Sequence[str], aggregates: Mapping[str, str]) -> tuple[str, str]:
    """The SELECT list and the GROUP BY of aggregates."""
    if not aggregates:
        raise ConfigError("there are no aggregates", hint="name at least one: aggregates={'n': 'count(*)'}")
    columns = [*by, *(f"{expression} AS {_name(name)}" for name, expression in aggregates.items())]
    return ", ".join(columns), f" GROUP BY {', '.join(by)}" if by else ""


def lookup_join(
    stream: DataFrame,
    table: DataFrame | Mapping[str, str],
    *,
    on: Keys,
    columns: str | None = None,
    how: Literal["inner", "left"] = "inner",
    time: str | None = None,
    delay: Span = "0 seconds",
    where: str | None = None,
    unit: Unit = "ms",
) -> DataFrame:
    """Join each row of a stream with the rows that an outside table has of its key when the row comes.

    ``table`` says where it is, by the options of CREATE TABLE … WITH, and ``columns`` what it has; or it is a small
    batch DataFrame, whose rows are taken as they are now.  A key may have several rows.  What was given is never
    revised.  The event time is only handed on.  Everything else is as for ``interval_join``.

    Raises ``ConfigError`` for options and kinds that are not known, and what SQL would raise for the rest.

        customers = {"connector": "jdbc", "url": "jdbc:postgresql://db/shop", "table": "customers", "user": "shop",
                     "password": "${env:SHOP_PASSWORD}"}
        named = lookup_join(orders, customers, columns="id BIGINT, name STRING", on=[("customer_id", "id")], how="left")
    """
    if how not in ("inner", "left"):
        raise ConfigError(f"how = {how!r} is no kind of lookup", hint="use 'inner' or 'left'")
    session = connect(stream.sparkSession)
    session.register("left", stream, time=time, delay=_words(delay), unit=unit)
    session.register_table("right", table, columns)
    as_of = "FOR SYSTEM_TIME AS OF PROCTIME()"
    return _frame(session, f"{_JOINS[how]} `right` {as_of} ON {_condition(on, where)}")


def _check_as_of(how: str) -> None:
    if how not in ("inner", "left"):
        raise ConfigError(f"how = {how!r} is no kind of join as of a time", hint="use 'inner' or 'left'")


def _emit(emit: str) -> str:
    if emit not in ("final", "changelog"):
        raise ConfigError(f"emit = {emit!r} is not known", hint="use 'final' or 'changelog'")
    return f"EMIT {emit.upper()}"


def _session(
    left: DataFrame,
    right: DataFrame,
    time: str | tuple[str, str],
    delay: Span,
    unit: Unit,
    mode: str = "append",
    primary_key: str | Sequence[str] = (),
    order: str | None = None,
) -> Session:
    """A session in which both frames are streams, ``left`` and ``right``; the right one's rows may change."""
    session = connect(left.sparkSession)
    one, other = _pair(time)
    session.register("left", left, time=one, delay=_words(delay), unit=unit)
    session.register(
        "right",
        right,
        time=other,
        delay=_words(delay),
        unit=unit,
        mode=mode,
        primary_key=_columns(primary_key),
        order=order,
    )
    return session


def _frame(session: Session, join: str) -> DataFrame:
    return _select(session, f"SELECT * FROM `left` {join}")


def _select(session: Session, query: str) -> DataFrame:
    try:
        result = session.sql(query)
    except WatersmeetError as error:
        error.position = None  # it is one in SQL that the caller has not written
        raise
    assert isinstance(result, Stream)
    return result.frame


def _condition(on: Keys, where: str | None) -> str:
    pairs = [on] if isinstance(on, str) else on
    terms = [f"`left`.{_name(a)} = `right`.{_name(b)}" for a, b in map(_pair, pairs)]
    if where is not None:
        terms.append(f"({where})")
    return " AND ".join(terms)


def _pair(names: str | tuple[str, str]) -> tuple[str, str]:
    return (names, names) if isinstance(names, str) else names


def _columns(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _rows(span: Span) -> str:
    """A number of rows."""
    found = re.fullmatch(r"\s*(\d+)(\s+rows?)?\s*", span) if isinstance(span, str) else None
    if found is None:
        raise ConfigError(f"{span!r} is no number of rows", hint="write '10'")
    return found[1]


def _name(column: str) -> str:
    return exp.to_identifier(column, quoted=True).sql(dialect="spark")


def _words(span: Span) -> str:
    return f"{span // timedelta(microseconds=1)} microseconds" if isinstance(span, timedelta) else span


def _interval(span: Span) -> str:
    try:
        amount, unit = split_duration(_words(span))
    except ValueError:
        raise ConfigError(f"{span!r} is not a duration", hint="write '10 minutes', or use a timedelta") from None
    if unit not in INTERVAL_UNITS:
        raise ConfigError(
            f"{span!r} has no unit of time", hint=f"units are {', '.join(INTERVAL_UNITS).lower()}; or use a timedelta"
        )
    return f"INTERVAL '{amount}' {unit}"
