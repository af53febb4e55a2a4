"""Changing streams in CREATE STREAM: the mode, the primary key and the column ``_tp_delta``."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.catalog.streams import StreamMode
from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, ConfigError, did_you_mean
from watersmeet.expressions.type_groups import INTEGERS, NESTED
from watersmeet.sql.statements import ColumnDef, CreateStream

_MODES = tuple(mode.value for mode in StreamMode)
_CHANGING = "SETTINGS mode = 'versioned_kv' or 'changelog_kv'"


def stream_mode(statement: CreateStream) -> StreamMode:
    """Return the mode that MUTABLE or the setting ``mode`` declares; it must fit the PRIMARY KEY."""
    for name, value in statement.settings.items():
        position = statement.settings_positions.get(name)
        if name != "mode":
            raise ConfigError(
                f"CREATE STREAM has no setting {name}",
                hint="its only setting is mode; options of the stream go into WITH (…), settings of a query to its end",
                position=position,
            )
        if value not in _MODES:
            raise ConfigError(
                f"mode = '{value}' is not a mode of streams", hint=f"modes are {', '.join(_MODES)}", position=position
            )
    given = statement.settings.get("mode")
    position = statement.settings_positions.get("mode", statement.position)
    if statement.mutable and given not in (None, StreamMode.VERSIONED.value):
        raise ConfigError(
            f"a MUTABLE stream has mode = '{StreamMode.VERSIONED.value}', not '{given}'",
            hint="leave out MUTABLE, or the setting",
            position=position,
        )
    mode = StreamMode.VERSIONED if statement.mutable else StreamMode(given or StreamMode.APPEND.value)
    if mode is StreamMode.APPEND and statement.primary_key:
        raise BindError(
            f"{statement.name} has a PRIMARY KEY, but its rows are only appended: none replaces another",
            hint=f"write CREATE MUTABLE STREAM, or add {_CHANGING}; or leave out PRIMARY KEY",
            position=position,
        )
    if mode is not StreamMode.APPEND and not statement.primary_key:
        raise BindError(
            f"{statement.name} is {'MUTABLE' if statement.mutable else f'of mode {mode.value}'} and has no PRIMARY KEY,"
            " which identifies the rows that replace each other",
            hint="add PRIMARY KEY (column, …)",
            position=position,
        )
    return mode


def primary_key(statement: CreateStream, columns: Mapping[str, ColumnDef]) -> tuple[str, ...]:
    """Return the columns of the PRIMARY KEY, spelled as declared; ``columns`` by lower-case name."""
    names: list[str] = []
    for wanted in statement.primary_key:
        place = statement.key_positions.get(wanted, statement.position)
        column = columns.get(wanted.lower())
        if column is None:
            raise BindError(
                f"PRIMARY KEY ({wanted}): {statement.name} has no such column",
                hint=did_you_mean(wanted, [each.name for each in statement.columns]),
                position=place,
            )
        if column.name in names:
            raise BindError(f"PRIMARY KEY names {column.name} twice", position=place)
        if column.type.is_type(*NESTED):
            raise BindError(
                f"{column.name} is {column.type.sql('spark')}: a PRIMARY KEY cannot have this type",
                position=column.position,
            )
        if column.name.lower() == TP_DELTA:
            raise BindError(
                f"{TP_DELTA} cannot be in the PRIMARY KEY: it marks inserts and deletes", position=column.position
            )
        names.append(column.name)
    return tuple(names)


def check_delta(column: ColumnDef | None, mode: StreamMode) -> None:
    """Raise ``BindError`` unless a declared ``_tp_delta`` is an integer of a changing stream."""
    if column is None:
        return
    if mode is StreamMode.APPEND:
        raise BindError(
            f"{TP_DELTA} marks inserts (+1) and deletes (-1), but this stream is append-only",
            hint=f"add PRIMARY KEY (…) {_CHANGING}; or give the column another name",
            position=column.position,
        )
    if not column.type.is_type(*INTEGERS):
        raise BindError(
            f"{TP_DELTA} is {column.type.sql('spark')}: it is +1 or -1, a whole number",
            hint=f"declare {TP_DELTA} TINYINT",
            position=column.position,
        )
