"""A stream's rows in the harness, with the hidden columns that a connector adds on Spark.

Raw text is decoded in plain Python, JSON only, with the results of connectors/formats/values.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, RAW, SEQUENCE, TP_DELTA, TP_TIME
from watersmeet.connectors.formats.envelope import DEBEZIUM
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.testing.case import NotationError
from watersmeet.testing.cells import Row, Value, format_value, parse_cell
from watersmeet.testing.debezium import Change, changes_of
from watersmeet.testing.nested_cells import is_nested
from watersmeet.testing.nested_json import nested_value
from watersmeet.testing.rig import StepInput

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FRACTIONS = ("FLOAT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True, slots=True)
class _Read:
    """One row, or the reason why it is bad; ``place`` is the place of its record in the step."""

    place: int
    values: Row
    delta: Value = 1
    reason: str | None = None
    raw: str | None = None


def source_table(stream: StreamDef, step: StepInput, fed: int) -> pa.Table:
    """Return a step's rows, then its records, bad ones last; earlier steps have fed ``fed`` rows of the stream.

    The time of arrival is the number of rows fed before, in microseconds.
    """
    read = [_row(place, row, stream) for place, row in enumerate(step.rows)]
    read += _decode(step.raw, stream, len(step.rows))
    if stream.changes:
        read = [replace(each, reason=each.reason or _change_reason(each, stream)) for each in read]
    read.sort(key=lambda each: each.reason is not None)
    columns = {
        column.name: pa.array(
            [each.values[i] for each in read], arrow_type(exp.DataType.build(column.type, dialect="spark"))
        )
        for i, column in enumerate(stream.columns)
    }
    columns.setdefault(TP_TIME, pa.array([fed] * len(read), pa.int64()).cast(pa.timestamp("us", tz="UTC")))
    if stream.changes:
        columns[TP_DELTA] = pa.array([None if each.reason else each.delta for each in read], pa.int8())
    columns[SEQUENCE] = pa.array([(fed + each.place).to_bytes(8, "big") for each in read], pa.binary())
    columns[BAD] = pa.array([each.reason for each in read], pa.string())
    columns[RAW] = pa.array([each.raw if each.reason else None for each in read], pa.string())
    return pa.table(columns)


def _row(place: int, values: Row, stream: StreamDef) -> _Read:
    """Return a row with its delta, which is in its column if that is declared, and otherwise may follow the row."""
    names = [column.name for column in stream.columns]
    if TP_DELTA in names:
        return _Read(place, values, values[names.index(TP_DELTA)])
    return _Read(place, values[: len(names)], values[len(names)] if len(values) > len(names) else 1)


def _change_reason(read: _Read, stream: StreamDef) -> str | None:
    """Return why a row is not a valid change, in the words of connectors/changes.py."""
    by_name = dict(zip((column.name for column in stream.columns), read.values, strict=True))
    for name in stream.primary_key:
        if by_name[name] is None:
            return f"primary key column {name} is NULL"
    if read.delta not in (1, -1):
        return f"{TP_DELTA} is {format_value(read.delta)}: a change is +1 or -1"
    return None


def _decode(records: Sequence[str], stream: StreamDef, first: int) -> Iterator[_Read]:
    """Yield the rows of the records, whose places start at ``first``."""
    format = stream.options.get("format", "json").lower()
    if records and format not in ("json", DEBEZIUM):
        raise UnsupportedError(
            f"{stream.name} has format {format}, and without Spark only json and {DEBEZIUM} are read",
            hint="run the case with --spark",
        )
    for place, record in enumerate(records, first):
        unread = _Read(place, (None,) * len(stream.columns), raw=record)
        try:
            fields = _fields(record)
            changes = list(changes_of(fields, stream)) if format == DEBEZIUM else [None]
        except ValueError as error:
            yield replace(unread, reason=str(error))
            continue
        for change in changes:
            try:
                row = _json_row(fields, stream) if change is None else _change_row(change, stream)
                yield replace(_row(place, row, stream), raw=record)
            except (ValueError, NotationError) as error:
                yield replace(unread, reason=str(error))


def _json_row(fields: Mapping[str, object], stream: StreamDef) -> Row:
    return tuple(_value(fields.get(each.name.lower()), each.type, each.name) for each in stream.columns)


def _change_row(change: Change, stream: StreamDef) -> Row:
    """Return the row of a change, with its delta in the declared column or after the others."""
    row = _json_row(change.image, stream)
    overridden: dict[str, Value] = {TP_DELTA: change.delta}
    if change.is_timed:
        overridden[stream.time_column] = change.time
    names = [column.name for column in stream.columns]
    values = tuple(overridden.get(name, value) for name, value in zip(names, row, strict=True))
    return values if TP_DELTA in names else (*values, change.delta)


def _fields(record: str) -> dict[str, object]:
    """Return the values of a JSON object by lower-case name."""
    try:
        document = json.loads(record, parse_float=Decimal)
    except ValueError:
        raise ValueError("not valid JSON") from None
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return {name.lower(): value for name, value in document.items()}


def _value(value: object, type_name: str, column: str) -> Value:
    if value is None:
        return None
    if is_nested(type_name):
        try:
            found: Value = nested_value(value, type_name, lambda part, of: _value(part, of, column))
        except ValueError:
            raise ValueError(f"{column}: {json.dumps(value, default=float)} does not fit {type_name}") from None
        return found
    base = type_name.split("(", maxsplit=1)[0].upper()
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    fits = (
        (base in _INTEGERS and isinstance(value, int) and is_number)
        or (base in _FRACTIONS and is_number)
        or (base == "BOOLEAN" and isinstance(value, bool))
        or (base not in (*_INTEGERS, *_FRACTIONS, "BOOLEAN") and isinstance(value, str))
    )
    if base == "STRING" and not isinstance(value, str):
        return str(value) if isinstance(value, Decimal) else json.dumps(value, separators=(",", ":"), default=float)
    if not fits:
        raise ValueError(f"{column}: {json.dumps(value, default=float)} does not fit {type_name}")
    return parse_cell(str(value).lower() if isinstance(value, bool) else str(value), type_name)
