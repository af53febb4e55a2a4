"""CREATE STREAM as a definition for the catalogue: event time, key and options checked where they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast, get_args

from sqlglot import exp

from watersmeet.catalog import EMBEDDED, StreamColumn, StreamDef, StreamMode
from watersmeet.columns import RESERVED, TP_TIME
from watersmeet.errors import BindError, ConfigError, Position, did_you_mean
from watersmeet.plan.arrow_types import arrow_type
from watersmeet.plan.times import TimeUnit, interval_micros
from watersmeet.sql.positions import position_of
from watersmeet.sql.statements import CreateStream, InsertSelect

_T = exp.DataType.Type
_INTEGER_UNITS = (TimeUnit.SECONDS, TimeUnit.MILLISECONDS, TimeUnit.MICROSECONDS, TimeUnit.ROWS)
_UNIT_OPTION = "event_time_unit"
_DEFAULT_TIMES = ("timestamp", "ts")


def define_stream(statement: CreateStream) -> StreamDef:
    """The definition that a CREATE STREAM with columns gives.

    Raises ``BindError`` for a watermark or key over columns that are not there or do not fit, ``ConfigError`` for an
    unknown event_time_unit.
    """
    check_name(statement.name, statement.position)
    columns = {column.name.lower(): column for column in statement.columns}
    if len(columns) < len(statement.columns):
        raise _twice(statement)
    for column in statement.columns:
        arrow_type(column.type)
        if set(column.name) & set('.`:$"'):
            raise BindError(
                f"{column.name} cannot be a column's name: it holds one of . ` : $ \"", position=column.position
            )
        if column.name.lower() in RESERVED:
            raise BindError(f"{column.name} is a name that sources use themselves", position=column.position)
    time_column, has_watermark = _time_column(statement)
    unit = TimeUnit.TIMESTAMP
    if time_column != TP_TIME:
        unit = _unit(columns[time_column.lower()].type, time_column, statement)
    for name in statement.primary_key:
        if name.lower() not in columns:
            raise BindError(
                f"the primary key names {name}, which is no column of {statement.name}",
                hint=did_you_mean(name, [column.name for column in statement.columns]),
                position=statement.position,
            )
    options = {key: value for key, value in statement.options.items() if key not in ("connector", _UNIT_OPTION)}
    mode = "mutable" if statement.mutable else str(statement.settings.get("mode", "append"))
    if mode not in get_args(StreamMode):
        raise ConfigError(
            f"mode = '{mode}' is not a mode of streams",
            hint="modes are append, versioned_kv and changelog_kv",
            position=statement.settings_positions.get("mode"),
        )
    return StreamDef(
        name=statement.name,
        columns=tuple(
            StreamColumn(name=column.name, type=column.type.sql(dialect="spark")) for column in statement.columns
        ),
        time_column=time_column,
        time_unit=unit,
        delay=_delay(statement, unit),
        has_watermark=has_watermark,
        primary_key=statement.primary_key,
        mode=cast("StreamMode", mode),
        connector=statement.options.get("connector", EMBEDDED),
        options=options,
        settings=statement.settings,
        definition=statement.source,
    )


def check_name(name: str, position: Position | None = None) -> None:
    """Raise ``BindError`` for a name that could not be that of a folder in the workspace."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise BindError(
            f"{name} cannot be the name of a stream",
            hint="use letters, digits and _, and no digit first",
            position=position,
        )


def check_target(stream: StreamDef, given: Sequence[str], statement: InsertSelect) -> None:
    """Raise ``BindError`` where INSERT INTO … SELECT gives other columns than its target takes.

    A target that declares no columns takes what comes.
    """
    targets = statement.columns or tuple(column.name for column in stream.columns)
    if not targets:
        return
    if len(given) != len(targets):
        raise BindError(
            f"the query gives {len(given)} columns, {stream.name} takes {len(targets)}",
            detail=f"given: {', '.join(given)}\ntaken: {', '.join(targets)}",
            position=statement.position,
        )
    for name in statement.columns:
        if stream.column(name) is None:
            declared = [column.name for column in stream.columns]
            raise BindError(
                f"{stream.name} has no column {name}", hint=did_you_mean(name, declared), position=statement.position
            )


def _time_column(statement: CreateStream) -> tuple[str, bool]:
    """The event-time column: WATERMARK's, else ``timestamp`` or ``ts`` if there is just one, else arrival time."""
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
    """The declared delay in axis units; for plain numbers it counts in the column's own unit."""
    delay = statement.watermark.delay if statement.watermark else None
    if delay is None:
        return 0
    if isinstance(delay, exp.Literal):
        if not unit.is_integer:
            raise BindError(
                "a delay of a TIMESTAMP is an interval, not a number",
                hint="write INTERVAL '5' SECONDS",
                position=position_of(delay),
            )
        amount = int(delay.name) * unit.scale
    elif unit is TimeUnit.ROWS:
        raise BindError(
            "event_time_unit = 'row' counts rows: its delay is a number, not an interval",
            hint="write … AS sn - 10",
            position=position_of(delay),
        )
    else:
        amount = interval_micros(delay)
    if amount < 0:
        raise BindError("a delay cannot be negative", position=position_of(delay))
    return amount


def _twice(statement: CreateStream) -> BindError:
    seen: set[str] = set()
    for column in statement.columns:
        if column.name.lower() in seen:
            return BindError(f"{statement.name} has two columns {column.name}", position=column.position)
        seen.add(column.name.lower())
    raise AssertionError("no column stands twice")
