"""Joins of Spark streaming DataFrames from Python, without SQL around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame

from watersmeet.catalog.streams import StreamMode
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.session.join_clauses import (
    Keys,
    Span,
    column_list,
    condition,
    emit_clause,
    group_clauses,
    interval,
    pair,
    quoted,
    row_count,
    settings_clause,
    span_text,
)
from watersmeet.session.results import Stream
from watersmeet.session.session import Session, connect

How: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti", "right_semi", "right_anti"]
_JOINS: dict[str, str] = {
    "inner": "INNER JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
    "right_semi": "RIGHT SEMI JOIN",
    "right_anti": "RIGHT ANTI JOIN",
}
Unit: TypeAlias = Literal["s", "ms", "us", "row"]
Emit: TypeAlias = Literal["final", "changelog"]
#: By direction: the comparison for MATCH_CONDITION, and the distance that ``tolerance`` limits.
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
    allowed_lateness: Span | None = None,
    where: str | None = None,
    emit: Emit = "final",
    unit: Unit = "ms",
) -> DataFrame:
    """Join two streams on equal keys and on event times within a window of each other.

    A left row and a right row match if their keys are equal, ``where`` is true and ``left.time - before <= right.time
    <= left.time + after``.  A NULL key matches nothing.  Every matching pair is emitted exactly once, as soon as both
    rows have arrived.  ``left``, ``right`` and ``full`` joins also emit the rows without a match, padded with NULL.  A
    ``semi`` join emits each left row that has a match once, an ``anti`` join each left row that has none;
    ``right_semi`` and ``right_anti`` do the same with the right rows.

    With ``emit="final"`` a padded or anti row is emitted once the watermarks of both streams have passed its window,
    and nothing is ever retracted.  With ``emit="changelog"`` it is emitted at once, and retracted if a match arrives.

    The arguments:
        left, right: Streaming DataFrames.
        on: A key column, or a list of columns and of (left, right) pairs of columns.  The types of a pair must be
            equal, or both numeric.
        within: The window as (before, after), or one span for both: text such as ``"10 minutes"``, or a timedelta.
        how: ``inner``, ``left``, ``right``, ``full``, ``semi``, ``anti``, ``right_semi`` or ``right_anti``.
        time: The event-time column, or (left, right) columns: TIMESTAMP, or a whole number of ``unit``.
        delay: How far rows arrive out of order.  The watermark of a stream is its newest event time minus the delay.
        grace: How much longer late rows are accepted; results wait for them.
        allowed_lateness: For how long after that a late row still corrects results, which do not wait for it.  Joins
            other than inner and semi joins then need ``emit="changelog"``.
        where: An SQL condition over ``left`` and ``right`` that is part of the match.
        emit: ``final`` or ``changelog``.
        unit: The unit of whole-number event times: ``s``, ``ms``, ``us``, or ``row`` for sequence numbers.

    Returns:
        A streaming DataFrame with the columns of the left side, then those of the right side, under their own types.  A
        right column whose name is taken is named ``right_NAME``.  Semi and anti joins have the columns
        of one side only.  A changelog ends with ``_tp_delta`` TINYINT: +1 for a new row, -1 for a retracted one.

    Raises:
        ConfigError: An unknown ``how``, ``emit`` or ``unit``, or a span that cannot be read.
        BindError: A column that does not exist, or keys whose types differ.
        WatersmeetError: Whatever else SQL would refuse; PlanError, for example, if the window is empty.

    Example:
        ::

            joined = interval_join(orders, payments, on="order_id", within=("0 minutes", "10 minutes"), how="left")

            orders                         payments
            order_id | amount | ts         order_id | paid | ts
            1        | 30     | 10:00      1        | 30   | 10:04
            2        | 20     | 10:01      2        | 20   | 10:12

            joined
            order_id | amount | ts    | right_order_id | paid | right_ts
            1        | 30     | 10:00 | 1              | 30   | 10:04
            2        | 20     | 10:01 | NULL           | NULL | NULL

        The second row is emitted once both watermarks have passed 10:11.
    """
    if how not in _JOINS:
        raise ConfigError(f"how = {how!r} is not a kind of join", hint=f"use one of {', '.join(_JOINS)}")
    before, after = within if isinstance(within, tuple) else (within, within)
    clauses = f"WITHIN ({interval(before)}, {interval(after)})"
    if grace is not None:
        clauses += f" GRACE PERIOD {interval(grace)}"
    if allowed_lateness is not None:
        clauses += f" ALLOWED LATENESS {interval(allowed_lateness)}"
    session = _session(left, right, time, delay, unit)
    return _frame(session, f"{_JOINS[how]} `right` ON {condition(on, where)} {clauses} {emit_clause(emit)}")


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
    """Join each left row with the one right row of its key that is nearest in event time.

    ``direction="backward"`` picks the newest right row at or before the left row, ``"forward"`` the oldest at or after
    it, ``"nearest"`` the nearer of the two.  ``strict`` excludes equal times.  ``tolerance`` excludes rows that are
    further away.  Of right rows with equal key and time, the one with the greatest ``order`` is picked; without
    ``order`` the choice is arbitrary but always the same.  ``where`` tests the picked row and never picks another one.
    ``left`` joins pad a left row that has no match with NULL; ``inner`` joins drop it.

    With ``emit="final"`` a left row is emitted once the watermarks show that no better match can arrive.  With
    ``emit="changelog"`` it is emitted at once, and corrected until then.

    The arguments:
        left, right: Streaming DataFrames.  The right one may be a batch DataFrame: its rows are read during the call.
        on, time, delay, where, emit, unit: As for ``interval_join``.
        direction: ``backward``, ``forward`` or ``nearest``.
        strict: Whether equal times do not match; not with ``nearest``.
        tolerance: The greatest distance in time: a span, or with ``unit="row"`` a number such as ``"10"``.
        how: ``inner`` or ``left``.
        primary_key: Key columns of a right stream that changes (mode ``changelog_kv``): a right row whose ``_tp_delta``
            is -1 deletes the row of the same key and time.
        order: The right column, a whole number or a TIMESTAMP, that orders rows of equal time.

    Returns:
        A streaming DataFrame with the columns of ``interval_join``.

    Raises:
        ConfigError: An unknown ``direction``, ``how``, ``emit`` or ``unit``, a span that cannot be read, ``strict``
            with ``nearest``, or an ``order`` that cannot order rows.
        BindError: A column that does not exist, or keys whose types differ.
        WatersmeetError: Whatever else SQL would refuse.

    Example:
        ::

            quoted = asof_join(trades, quotes, on="symbol", tolerance="5 seconds", how="left")

            trades                         quotes
            symbol | qty | ts              symbol | bid | ts
            A      | 5   | 10:00:03        A      | 100 | 10:00:00
            A      | 7   | 10:00:20        A      | 101 | 10:00:02
                                           A      | 102 | 10:00:04

            quoted
            symbol | qty | ts       | right_symbol | bid  | right_ts
            A      | 5   | 10:00:03 | A            | 101  | 10:00:02
            A      | 7   | 10:00:20 | NULL         | NULL | NULL
    """
    if direction not in _NEARNESS:
        raise ConfigError(f"direction = {direction!r} is not known", hint=f"use one of {', '.join(_NEARNESS)}")
    if strict and direction == "nearest":
        raise ConfigError("strict does not go with direction = 'nearest'", hint="leave it out")
    _check_as_of(how)
    one, other = (f"`{side}`.{quoted(column)}" for side, column in zip(("left", "right"), pair(time), strict=True))
    nearness, distance = _NEARNESS[direction]
    match = nearness.format(one=one, other=other, equal="" if strict else "=")
    if tolerance is not None:
        span = row_count(tolerance) if unit == "row" else interval(tolerance)
        match += f" AND {distance.format(one=one, other=other)} <= {span}"
    session = _session(left, right, time, delay, unit, "changelog_kv" if primary_key else "append", primary_key, order)
    join = "ASOF JOIN" if how == "inner" else "LEFT ASOF JOIN"
    return _frame(session, f"{join} `right` MATCH_CONDITION ({match}) ON {condition(on, where)} {emit_clause(emit)}")


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
    at: str | None = None,
    version: str | None = None,
    index: str | Sequence[str] = (),
    retention: Span | None = None,
) -> DataFrame:
    """Join each row of a stream with the version of a table that was valid at the row's event time, or is known now.

    ``table`` holds versions: each is valid from its event time until that of the next version of its key.  Without a
    ``primary_key`` the join columns are that key.  With a ``primary_key`` and a ``mode`` versions can also be replaced
    and deleted, and a row matches every version that is valid and equal in the join columns.  ``where`` tests the
    versions found.  ``left`` joins pad a row that has no match with NULL; ``inner`` joins drop it.

    With ``as_of="event"`` a row is emitted once the watermarks show that no version can arrive that it would match.
    With ``wait=False`` or ``as_of="now"`` it is joined at once with the versions known so far and never corrected.
    With ``emit="changelog"`` it is emitted at once and corrected, with ``as_of="now"`` whenever the table changes.

    The arguments:
        stream: A streaming DataFrame.
        table: A streaming DataFrame of versions, or a batch DataFrame: its rows are read during the call.
        on, time, delay, where, emit, unit, order: As for ``asof_join``.
        how: ``inner`` or ``left``.
        as_of: ``event`` for the row's event time, ``now`` for the time at which the row is processed.
        at: Another time than these, in SQL over the stream's columns or constant: ``"created_at"``.  It has the type of
            the table's time.
        version: The table's column with the times of its versions, if that is not its event time: a TIMESTAMP, or a
            whole number of milliseconds, whatever ``unit``.
        index: Columns by which versions are found if the join columns are not the primary key, as with CREATE INDEX.
            Without it, such a join reads all versions with each batch.
        retention: How far behind the watermarks changes of the table still correct results, a span or ``"forever"``;
            only with ``emit="changelog"``.  With ``at``, also with ``emit="final"``: how long versions can be asked
            for, by default forever.
        wait: Whether to wait for versions that may still arrive.
        mode: ``append``, ``versioned_kv`` (a version whose ``_tp_delta`` is -1 ends its key's validity) or
            ``changelog_kv`` (it deletes the version of the same key and time).
        primary_key: Key columns of the table; required by the last two modes.

    Returns:
        A streaming DataFrame with the columns of ``interval_join``; the stream is its left side.

    Raises:
        ConfigError: An unknown ``how``, ``as_of``, ``emit``, ``mode`` or ``unit``, ``at`` with ``as_of="now"``, an
            ``index`` without a ``primary_key``, or a span that cannot be read.
        BindError: A column that does not exist, or keys whose types differ.
        WatersmeetError: Whatever else SQL would refuse.

    Example:
        ::

            priced = temporal_join(orders, rates, on="currency", how="left", time=("ordered", "since"))

            orders                         rates
            id | currency | ordered        currency | rate | since
            1  | EUR      | 10:00          EUR      | 110  | 09:00
            2  | EUR      | 10:07          EUR      | 112  | 10:05
            3  | CHF      | 10:08

            priced
            id | currency | ordered | right_currency | rate | since
            1  | EUR      | 10:00   | EUR            | 110  | 09:00
            2  | EUR      | 10:07   | EUR            | 112  | 10:05
            3  | CHF      | 10:08   | NULL           | NULL | NULL
    """
    _check_as_of(how)
    if as_of not in ("event", "now"):
        raise ConfigError(f"as_of = {as_of!r} is not known", hint="use 'event' or 'now'")
    if at is not None and as_of == "now":
        raise ConfigError("at does not go with as_of = 'now'", hint="leave one of them out")
    moment = at or ("PROCTIME()" if as_of == "now" else f"`left`.{quoted(pair(time)[0])}")
    versioned = "" if version is None else f" VERSIONED ON {quoted(version)}"
    settings: dict[str, str | int] = {} if wait else {"temporal_wait": "none"}
    if retention is not None:
        settings["table_retention"] = span_text(retention)
    session = _session(stream, table, time, delay, unit, mode, primary_key, order)
    if index:
        _run(session, f"CREATE INDEX by_columns ON `right` ({', '.join(map(quoted, column_list(index)))})")
    join = f"{_JOINS[how]} `right` FOR SYSTEM_TIME AS OF {moment}{versioned} ON {condition(on, where)}"
    return _frame(session, f"{join} {emit_clause(emit)}{settings_clause(settings)}")


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
    """Join two streams whose rows replace each other, and keep the result correct as they change.

    At every moment the accumulated result is the join of the current rows: of each primary key the newest one.  A row
    whose ``_tp_delta`` is -1 deletes its key's row.  The newest change is the one with the greatest event time, then
    the greatest ``order``; without ``time``, the last one to arrive.  A side without a primary key only appends, and
    keeps all its rows.  With a ``delay`` changes that arrive later than that are late: they are counted and dropped.

    The arguments:
        left, right: Streaming DataFrames.
        on, where, unit: As for ``interval_join``.
        left_key, right_key: Primary key columns of each side; none for a side that only appends.
        how: As for ``interval_join``.
        time: The event-time column, or (left, right) columns; by default the time of arrival.
        delay: How far changes arrive out of order; by default no change is late.
        mode: ``versioned_kv``, or ``changelog_kv`` if an update is a -1 of the old row and a +1 of the new one.
        order: The column, or (left, right) columns, that orders changes of equal time.
        max_state_bytes: The limit on stored bytes.  A query that reaches it stops and loses nothing.  If a side only
            appends, the default is 512 MiB; otherwise there is no limit.
        by, aggregates: If given, the result is grouped and aggregated as by ``aggregate``.  A column that both sides
            have needs its side: ``"`right`.tier"``.

    Returns:
        A streaming DataFrame: a changelog with the columns of ``interval_join`` and ``_tp_delta`` TINYINT last, +1 for
        a row that is valid now, -1 for one that no longer is.  With ``aggregates``, the columns of ``aggregate``.

    Raises:
        ConfigError: An unknown ``how``, ``mode`` or ``unit``, or ``by`` without ``aggregates``.
        BindError: A column that does not exist, or keys whose types differ.
        WatersmeetError: Whatever else SQL would refuse.
        LimitError: From the running query, at ``max_state_bytes``.

    Example:
        ::

            tiers = changelog_join(orders, customers, on=[("customer", "id")], left_key="order_id", right_key="id",
                                   how="left", time="changed")

            orders                              customers
            batch | order_id | customer | changed     batch | id | tier  | changed
            1     | 1        | 7        | 10:00       2     | 7  | gold  | 10:01
                                                      3     | 7  | basic | 10:02

            tiers
            batch | order_id | customer | changed | id   | tier  | right_changed | _tp_delta
            1     | 1        | 7        | 10:00   | NULL | NULL  | NULL          | 1
            2     | 1        | 7        | 10:00   | NULL | NULL  | NULL          | -1
            2     | 1        | 7        | 10:00   | 7    | gold  | 10:01         | 1
            3     | 1        | 7        | 10:00   | 7    | gold  | 10:01         | -1
            3     | 1        | 7        | 10:00   | 7    | basic | 10:02         | 1
    """
    if how not in _JOINS:
        raise ConfigError(f"how = {how!r} is not a kind of join", hint=f"use one of {', '.join(_JOINS)}")
    if by and aggregates is None:
        raise ConfigError("by needs aggregates", hint="name them: aggregates={'n': 'count(*)'}")
    session = connect(left.sparkSession)
    times, orders = (pair(name) if name is not None else (None, None) for name in (time, order))
    keys = (column_list(left_key), column_list(right_key))
    for name, frame, key, at, place in zip(("left", "right"), (left, right), keys, times, orders, strict=True):
        changes = mode if key else StreamMode.APPEND.value
        words = None if delay is None else span_text(delay)
        session.register(name, frame, time=at, delay=words, unit=unit, mode=changes, primary_key=key, order=place)
    settings = settings_clause({} if max_state_bytes is None else {"join_max_buffered_bytes": int(max_state_bytes)})
    join = f"{_JOINS[how]} `right` ON {condition(on, where)}"
    if aggregates is None:
        return _frame(session, f"{join} EMIT CHANGELOG{settings}")
    columns, groups = group_clauses(column_list(by), aggregates)
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
    """Aggregate a stream, by groups or as a whole, and keep the results correct as its rows change.

    Each batch emits the changes of its groups: the former row of a changed group with ``_tp_delta`` -1, its new row
    with +1.  NULL keys form one group.  Without ``by`` there is one row, from the first batch on.  With a
    ``primary_key`` a row replaces the former row of its key, and a row whose ``_tp_delta`` is -1 deletes it.

    The arguments:
        frame: A streaming DataFrame.
        aggregates: SQL aggregates by the name of their column: ``{"n": "count(*)", "total": "sum(amount)"}``.
        by: The columns that make a group.
        where, having: SQL conditions over rows and over groups.
        primary_key, mode, time, unit, order: As for ``changelog_join``.

    Returns:
        A streaming DataFrame: a changelog with the columns of ``by``, then ``aggregates`` with Spark's types, then
        ``_tp_delta`` TINYINT.

    Raises:
        ConfigError: No aggregates, or an unknown ``mode`` or ``unit``.
        BindError: A column that does not exist.
        WatersmeetError: Whatever else SQL would refuse; UnsupportedError, for example, for an unknown aggregate.

    Example:
        ::

            totals = aggregate(orders, by="customer", aggregates={"n": "count(*)", "total": "sum(amount)"},
                               primary_key="order_id")

            orders                                 totals
            batch | order_id | customer | amount   batch | customer | n | total | _tp_delta
            1     | 1        | ada      | 30       1     | ada      | 2 | 50    | 1
            1     | 2        | ada      | 20       2     | ada      | 2 | 50    | -1
            2     | 2        | ada      | 25       2     | ada      | 2 | 55    | 1
    """
    session = connect(frame.sparkSession)
    key = column_list(primary_key)
    changes = mode if key else StreamMode.APPEND.value
    session.register("rows", frame, time=time, delay=None, unit=unit, mode=changes, primary_key=key, order=order)
    columns, groups = group_clauses(column_list(by), aggregates)
    condition = "" if where is None else f" WHERE ({where})"
    tested = "" if having is None else f" HAVING {having}"
    return _select(session, f"SELECT {columns} FROM `rows`{condition}{groups}{tested} EMIT CHANGELOG")


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
    """Join each row of a stream with the rows that an external table has for its key when the row is processed.

    A row matches every table row with its key; a NULL key matches none.  ``where`` tests the rows found.  ``left``
    joins pad a row that has no match with NULL; ``inner`` joins drop it.  Rows are emitted with their batch and never
    corrected, and no row is late.

    The arguments:
        stream: A streaming DataFrame.
        table: The options of CREATE TABLE ... WITH, or a small batch DataFrame, whose rows are read during the call.
        on, where, unit: As for ``interval_join``.
        columns: The table's columns and their types, as in CREATE TABLE; only with options.
        how: ``inner`` or ``left``.
        time, delay: The event time of the stream, for joins of the result; by default the time of arrival.

    Returns:
        A streaming DataFrame with the columns of the stream, then those of the table, named as by ``interval_join``.

    Raises:
        ConfigError: An unknown option, ``how`` or ``unit``, options without ``columns``, or a secret in plain text.
        BindError: A column that does not exist, or keys whose types differ.
        ConnectorError: The table is not as ``columns`` declares it.
        WatersmeetError: Whatever else SQL would refuse.

    Example:
        ::

            customers = {"connector": "jdbc", "url": "jdbc:postgresql://db/shop", "table": "customers", "user": "shop",
                         "password": "${env:SHOP_PASSWORD}"}
            named = lookup_join(orders, customers, columns="id BIGINT, name STRING", on=[("customer", "id")],
                                how="left")

            orders                         customers
            order_id | customer            id | name
            1        | 7                   7  | Ada
            2        | 8

            named
            order_id | customer | id   | name
            1        | 7        | 7    | Ada
            2        | 8        | NULL | NULL
    """
    if how not in ("inner", "left"):
        raise ConfigError(f"how = {how!r} is not supported by lookup joins", hint="use 'inner' or 'left'")
    session = connect(stream.sparkSession)
    session.register("left", stream, time=time, delay=span_text(delay), unit=unit)
    session.register_table("right", table, columns)
    as_of = "FOR SYSTEM_TIME AS OF PROCTIME()"
    return _frame(session, f"{_JOINS[how]} `right` {as_of} ON {condition(on, where)}")


def _check_as_of(how: str) -> None:
    if how not in ("inner", "left"):
        raise ConfigError(f"how = {how!r} is not supported by joins as of a time", hint="use 'inner' or 'left'")


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
    """Return a session with the frames registered as the streams ``left`` and ``right``; only the latter may change."""
    session = connect(left.sparkSession)
    one, other = pair(time)
    session.register("left", left, time=one, delay=span_text(delay), unit=unit)
    session.register(
        "right",
        right,
        time=other,
        delay=span_text(delay),
        unit=unit,
        mode=mode,
        primary_key=column_list(primary_key),
        order=order,
    )
    return session


def _frame(session: Session, join: str) -> DataFrame:
    return _select(session, f"SELECT * FROM `left` {join}")


def _select(session: Session, query: str) -> DataFrame:
    result = _run(session, query)
    assert isinstance(result, Stream)
    return result.frame


def _run(session: Session, statement: str) -> object:
    try:
        return session.sql(statement)
    except WatersmeetError as error:
        error.position = None  # it points into SQL that the caller did not write
        raise
