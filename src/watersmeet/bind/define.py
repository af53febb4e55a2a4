"""Definitions for the catalogue from CREATE STREAM, CREATE TABLE and registered DataFrames."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from watersmeet.bind import declared_order
from watersmeet.bind.changing_streams import check_delta, primary_key, stream_mode
from watersmeet.catalog.streams import EMBEDDED, FRAME, OrderTerm, StreamColumn, StreamDef, StreamMode
from watersmeet.columns import RESERVED, TP_DELTA, TP_TIME
from watersmeet.errors import (
    BindError,
    ConfigError,
    Position,
    SqlSyntaxError,
    UnsupportedError,
    WatersmeetError,
    did_you_mean,
)
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.times import interval_micros
from watersmeet.settings.durations import split_duration
from watersmeet.sql.collation import foreign_collation, message
from watersmeet.sql.statements import (
    ColumnDef,
    CreateStream,
    CreateTable,
    Watermark,
)

_T = exp.DataType.Type
_INTEGER_UNITS = (TimeUnit.SECONDS, TimeUnit.MILLISECONDS, TimeUnit.MICROSECONDS, TimeUnit.ROWS)
_UNIT_OPTION = "event_time_unit"
_DEFAULT_TIMES = ("timestamp", "ts")


def define_stream(statement: CreateStream) -> StreamDef:
    """Return the definition of a CREATE STREAM with columns.

    Raises ``BindError`` for a watermark or key over missing or unsuitable columns, ``ConfigError`` for an unknown
    setting and an unsuitable mode or event_time_unit.
    """
    check_name(statement.name, statement.position)
    columns = _columns(statement)
    time_column, has_watermark = _time_column(statement)
    if time_column != TP_TIME:
        unit = _unit(columns[time_column.lower()].type, time_column, statement)
    elif _UNIT_OPTION in statement.options:
        raise ConfigError(
            f"event_time_unit is for event times that are integers, but {statement.name} uses arrival time",
            hint="name the column: WATERMARK FOR column AS column - INTERVAL '5' SECONDS",
            position=statement.options_positions.get(_UNIT_OPTION),
        )
    else:
        unit = TimeUnit.TIMESTAMP
    mode = stream_mode(statement)
    check_delta(columns.get(TP_DELTA), mode)
    ordered_by, order_unit = _order(statement, mode)
    own = ("connector", _UNIT_OPTION, declared_order.OPTION)
    options = {key: value for key, value in statement.options.items() if key not in own}
    return StreamDef(
        name=statement.name,
        columns=tuple(
            StreamColumn(
                name=TP_DELTA if column.name.lower() == TP_DELTA else column.name,
                type=column.type.sql(dialect="spark"),
            )
            for column in statement.columns
        ),
        time_column=time_column,
        time_unit=unit,
        delay=_delay(statement, unit),
        has_watermark=has_watermark,
        connector=statement.options.get("connector", EMBEDDED),
        options=options,
        definition=statement.source,
        mode=mode,
        primary_key=primary_key(statement, columns),
        ordered_by=ordered_by,
        order_unit=order_unit,
    )


def _order(statement: CreateStream, mode: StreamMode) -> tuple[tuple[OrderTerm, ...], TimeUnit | None]:
    """Return the declared order, and what its first column counts."""
    text = statement.options.get(declared_order.OPTION)
    if text is None:
        return (), None
    types = {column.name: column.type for column in statement.columns if column.name.lower() != TP_DELTA}
    terms = declared_order.declared_order(text, types, mode, statement.options_positions.get(declared_order.OPTION))
    return terms, declared_order.lead_unit(types[terms[0].expression])


def define_table(statement: CreateTable) -> StreamDef:
    """Return the definition of a CREATE TABLE: an external table for lookups.

    Raises ``BindError`` for clauses of streams, and for tables without columns or a connector.
    """
    check_name(statement.name, statement.position)
    columns = _columns(statement)
    refused = {
        "a query": statement.query.position if statement.query else None,
        "a WATERMARK": statement.watermark.position if statement.watermark else None,
        "a PRIMARY KEY": statement.position if statement.primary_key else None,
        "SETTINGS": next(iter(statement.settings_positions.values()), statement.position)
        if statement.settings
        else None,
    }
    for what, position in refused.items():
        if position is not None:
            raise BindError(
                f"{statement.name} is an external table: {what} is not supported",
                hint="leave it out, or CREATE STREAM",
                position=position,
            )
    for hidden in (TP_TIME, TP_DELTA):
        if hidden in columns:
            raise BindError(
                f"{hidden} is reserved for streams; tables do not have it", position=columns[hidden].position
            )
    if not columns or "connector" not in statement.options:
        raise BindError(
            f"the table {statement.name} needs columns and a connector: it refers to an existing external table",
            hint="CREATE TABLE name (id BIGINT, …) WITH (connector = 'jdbc', url = …, table = …); for a table that"
            " Watersmeet stores use CREATE MUTABLE STREAM",
            position=statement.position,
        )
    return StreamDef(
        name=statement.name,
        columns=tuple(StreamColumn(name=each.name, type=each.type.sql(dialect="spark")) for each in statement.columns),
        connector=statement.options["connector"],
        options={name: value for name, value in statement.options.items() if name != "connector"},
        definition=statement.source,
        outside=True,
    )


def define_outside(name: str, columns: str, options: Mapping[str, str]) -> StreamDef:
    """Return the definition of an external table from Python; ``columns`` are written as in CREATE TABLE.

    Raises like ``define_table``, and ``BindError`` for columns that cannot be parsed.
    """
    from watersmeet.sql.parse import parse

    try:
        statements = parse(f"CREATE TABLE t ({columns})")
    except SqlSyntaxError:
        statements = []
    if len(statements) != 1 or not isinstance(statements[0], CreateTable) or statements[0].options:
        raise BindError(f"{columns!r} is not a list of columns", hint="write 'id BIGINT, name STRING'")
    try:
        return define_table(replace(statements[0], name=name, options=dict(options), source=""))
    except WatersmeetError as error:
        error.position = None  # there is no text
        raise


def _columns(statement: CreateStream | CreateTable) -> dict[str, ColumnDef]:
    """Return the declared columns by lower-case name; ``BindError`` for invalid names."""
    columns = {column.name.lower(): column for column in statement.columns}
    if len(columns) < len(statement.columns):
        raise _twice(statement)
    for column in statement.columns:
        try:
            arrow_type(column.type)
        except UnsupportedError as error:
            error.position = error.position or column.position
            raise
        if set(column.name) & set('.`:$"'):
            raise BindError(
                f'{column.name} is not a valid column name: it contains one of . ` : $ "', position=column.position
            )
        if column.name.lower() in RESERVED:
            raise BindError(f"{column.name} is a reserved column name", position=column.position)
    return columns


def define_frame(
    name: str,
    columns: Sequence[tuple[str, str]],
    time: str | None,
    delay: str | None,
    unit: str,
    *,
    mode: str = StreamMode.APPEND.value,
    primary_key: Sequence[str] = (),
    ordered_by: str | None = None,
) -> StreamDef:
    """Return the definition of a DataFrame registered as a stream; ``columns`` are (name, Spark type).

    Without a ``delay`` the stream has no declared WATERMARK. Raises like ``define_stream``.
    """
    kind = next((kind for column, kind in columns if time is not None and column.lower() == time.lower()), "")
    counts = kind in ("tinyint", "smallint", "int", "bigint")
    if primary_key and mode == StreamMode.APPEND.value:
        raise BindError(
            f"{name} has a primary key, but its rows are only appended: none replaces another",
            hint="give a mode too, 'versioned_kv' or 'changelog_kv'; or leave out primary_key",
        )
    for column, type_text in columns:
        if (collation := foreign_collation(type_text)) is not None:
            raise UnsupportedError(
                f"column {column} of {name}: {message(collation)}",
                hint="cast the column to STRING; to ignore case, join on lower(…) of both sides",
            )
    nowhere = Position(1, 1)
    statement = CreateStream(
        name=name,
        columns=tuple(
            ColumnDef(column, exp.DataType.build(kind, dialect="spark"), nowhere) for column, kind in columns
        ),
        watermark=None if time is None else Watermark(time, _span(delay or "0 seconds", unit), nowhere),
        primary_key=tuple(primary_key),
        mutable=False,
        options={
            **({_UNIT_OPTION: unit} if counts else {}),
            **({declared_order.OPTION: ordered_by} if ordered_by is not None else {}),
        },
        settings={"mode": mode},
        if_not_exists=False,
        query=None,
        position=nowhere,
    )
    try:
        found = define_stream(statement)
    except WatersmeetError as error:
        error.position = None  # there is no text
        raise
    return found.model_copy(update={"connector": FRAME, "has_watermark": found.has_watermark and delay is not None})


def _span(text: str, unit: str) -> exp.Expr:
    """Parse a length such as '5 seconds'; for sequence numbers, a number of rows."""
    try:
        amount, word = split_duration(text)
    except ValueError:
        raise ConfigError(f"delay = {text!r} is not a duration", hint="write it like '5 seconds'") from None
    if unit == TimeUnit.ROWS.value and (word in ("", "ROW", "ROWS") or Decimal(amount) == 0):
        return exp.Literal.number(amount)
    return exp.Interval(this=exp.Literal.string(amount), unit=exp.var(word or "SECOND"))


def refuse_definitions(statement: CreateStream) -> None:
    """Raise ``BindError`` for clauses of CREATE STREAM … AS that its query already determines."""
    given = {
        "columns": statement.columns[0].position if statement.columns else None,
        "a WATERMARK": statement.watermark.position if statement.watermark else None,
        "a PRIMARY KEY": statement.position if statement.primary_key else None,
        "MUTABLE": statement.position if statement.mutable else None,
        "SETTINGS": next(iter(statement.settings_positions.values()), None),
        "ordered_by": statement.options_positions.get(declared_order.OPTION),
    }
    for what, position in given.items():
        if position is not None:
            raise BindError(
                f"CREATE STREAM {statement.name} AS … takes its columns and event time from its query, not {what}",
                hint="leave it out; write settings at the end of the query",
                position=position,
            )


def check_name(name: str, position: Position | None = None) -> None:
    """Raise ``BindError`` for a name that cannot be a folder of the workspace."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BindError(
            f"{name} is not a valid stream name",
            hint="use letters, digits and _; do not begin with a digit",
            position=position,
        )


def _time_column(statement: CreateStream) -> tuple[str, bool]:
    """Return the event-time column, and whether a WATERMARK declares it.

    Without one it is ``timestamp`` or ``ts`` if there is exactly one of them, else arrival time.
    """
    names = {column.name.lower(): column.name for column in statement.columns}
    if statement.watermark is not None:
        wanted = statement.watermark.column
        if wanted.lower() == TP_TIME:
            return TP_TIME, True
        if wanted.lower() not in names:
            raise BindError(
                f"WATERMARK FOR {wanted}: {statement.name} has no such column",
                hint=did_you_mean(wanted, names.values()),
                position=statement.watermark.position,
            )
        return names[wanted.lower()], True
    usual = [names[name] for name in _DEFAULT_TIMES if name in names and _may_be_time(statement, name)]
    return (usual[0], False) if len(usual) == 1 else (TP_TIME, False)


def _may_be_time(statement: CreateStream, name: str) -> bool:
    kind = next(column.type for column in statement.columns if column.name.lower() == name)
    return kind.is_type(*exp.DataType.INTEGER_TYPES, _T.TIMESTAMP, _T.TIMESTAMPTZ, _T.TIMESTAMPLTZ, _T.TIMESTAMPNTZ)


def _unit(kind: exp.DataType, column: str, statement: CreateStream) -> TimeUnit:
    given = statement.options.get(_UNIT_OPTION)
    position: Position | None = statement.options_positions.get(_UNIT_OPTION)
    if kind.is_type(_T.TIMESTAMPNTZ):
        unit = TimeUnit.TIMESTAMP_NTZ
    elif kind.is_type(_T.TIMESTAMP, _T.TIMESTAMPTZ, _T.TIMESTAMPLTZ):
        unit = TimeUnit.TIMESTAMP
    elif kind.is_type(*exp.DataType.INTEGER_TYPES):
        allowed = {unit.value: unit for unit in _INTEGER_UNITS}
        if given is not None and given not in allowed:
            raise ConfigError(
                f"event_time_unit = '{given}' is not known",
                hint=f"use one of {', '.join(repr(value) for value in allowed)}",
                position=position,
            )
        return allowed[given or TimeUnit.MILLISECONDS.value]
    else:
        raise BindError(
            f"{column} is {kind.sql('spark')}: an event time is a TIMESTAMP, a TIMESTAMP_NTZ or a whole number",
            position=statement.watermark.position if statement.watermark else statement.position,
        )
    if given is not None:
        raise ConfigError(
            f"event_time_unit is for whole numbers, but {column} is {kind.sql('spark')}",
            hint="leave it out",
            position=position,
        )
    return unit


def _delay(statement: CreateStream, unit: TimeUnit) -> int:
    """Return the delay in units of internal event time; a plain number counts in the column's unit."""
    delay = statement.watermark.delay if statement.watermark else None
    if delay is None:
        return 0
    if isinstance(delay, exp.Literal):
        if not unit.is_integer:
            raise BindError(
                "the delay of a TIMESTAMP is an interval, not a number",
                hint="write INTERVAL '5' SECONDS",
                position=position_of(delay),
            )
        if not delay.name.isdecimal():
            raise BindError(
                f"a delay of {delay.name}: as a number it is a whole one",
                hint="write … AS sn - 10, or INTERVAL '2.5' SECONDS where event times are instants",
                position=position_of(delay),
            )
        amount = int(delay.name) * unit.scale
    elif unit is TimeUnit.ROWS:
        raise BindError(
            "event_time_unit = 'row' counts rows: the delay is a number, not an interval",
            hint="write … AS sn - 10",
            position=position_of(delay),
        )
    else:
        amount = interval_micros(delay)
    if amount < 0:
        raise BindError("a delay cannot be negative", position=position_of(delay))
    return amount


def _twice(statement: CreateStream | CreateTable) -> BindError:
    seen: set[str] = set()
    for column in statement.columns:
        if column.name.lower() in seen:
            return BindError(f"{statement.name} has two columns {column.name}", position=column.position)
        seen.add(column.name.lower())
    raise AssertionError("no column stands twice")
