"""Rows as Avro records of a schema: one that ``avro_columns.schema_for`` made for the columns, or a user's own.

The functions of a column's type and the schema's type are composed, as those of ``avro_reader``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

from watersmeet.columns import same_name
from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.expressions.type_names import spark_type
from watersmeet.records.schema_registry.avro_columns import natural_type
from watersmeet.records.schema_registry.avro_defaults import default_of
from watersmeet.records.schema_registry.avro_types import AvroField, AvroType
from watersmeet.records.schema_registry.cells import Fit, MisfitError, fit
from watersmeet.records.schema_registry.column_types import require_convertible

#: Appends a value, as ``plain_values`` gives it, to bytes; ``MisfitError`` if the schema does not take it.
Write: TypeAlias = Callable[[Any, bytearray], None]

_EXACT = Context(prec=80)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_MILLIS = ("timestamp-millis", "local-timestamp-millis")


def writer_of(record: AvroType, columns: pa.Schema, where: str) -> Write:
    """Return what writes rows of ``columns`` as records.

    Raises ``ConfigError`` for a column that the schema has not, or takes no values of, and for a field that has no
    column, no default and no null.
    """
    if record.kind != "record":
        raise ConfigError(f"{where} is {record}, and no record with fields")
    return _record(record, list(columns), "")


def _record(record: AvroType, columns: list[pa.Field], path: str) -> Write:
    names = [each.name for each in columns]
    known = [each.name for each in record.fields]
    for name in names:
        if same_name(name, known) is None:
            raise ConfigError(
                f"column {path}{name} is not in the schema, which has {', '.join(known)}",
                hint="leave it out of the sink, or register a schema that has it",
            )
    steps: list[tuple[str, Write]] = []
    for field in record.fields:
        name = same_name(field.name, names)
        if name is None:
            steps.append(("", _constant(field, path)))
            continue
        column = columns[names.index(name)]
        steps.append((name, _nullable(field.type, column.type, f"{path}{name}")))

    def write(row: Mapping[str, Any], out: bytearray) -> None:
        for name, each in steps:
            each(row[name] if name else None, out)

    return write


def _constant(field: AvroField, path: str) -> Write:
    """What writes a field that has no column."""
    if not field.has_default and not field.type.has_null:
        raise ConfigError(
            f"the schema's field {path}{field.name} has no column, and neither a default nor null",
            hint=f"add a column {field.name} to the sink",
        )
    natural = natural_type(field.type)
    value = default_of(field.type, field.default) if field.has_default else None
    if value is not None and natural is None:
        raise UnsupportedError(
            f"the schema's field {path}{field.name} has no column, and a default of several types",
            hint=f"add a column {field.name} to the sink",
        )
    written = bytearray()
    _nullable(field.type, natural if natural is not None else pa.null(), f"{path}{field.name}")(
        None if value is None else (fit(natural)(value) if natural is not None else value), written
    )

    def write(_: Any, out: bytearray) -> None:
        out += written

    return write


def _nullable(kind: AvroType, column: pa.DataType, path: str) -> Write:
    """What writes a value or NULL."""
    if kind.kind == "union":
        null = next((n for n, branch in enumerate(kind.branches) if branch.kind == "null"), None)
        number, branch = _branch(kind, column, path)
        value = _value(branch, column, path)
        tag, null_tag = long_bytes(number), None if null is None else long_bytes(null)
    else:
        value, tag, null_tag = _value(kind, column, path), b"", b"" if kind.kind == "null" else None

    def write(given: Any, out: bytearray) -> None:
        if given is None:
            if null_tag is None:
                raise MisfitError(f"{path} is NULL, which the schema does not take")
            out += null_tag
        else:
            out += tag
            value(given, out)

    return write


def _branch(union: AvroType, column: pa.DataType, path: str) -> tuple[int, AvroType]:
    """The first branch of exactly the column's type, else the first that takes its values."""
    others = [(n, branch) for n, branch in enumerate(union.branches) if branch.kind != "null"]
    for each in others:
        if natural_type(each[1]) == column:
            return each
    for each in others:
        if len(others) == 1 or _takes(each[1], column, path):
            return each
    if not others:
        return 0, union.branches[0]
    raise ConfigError(f"column {path} is {spark_type(column)}, which no branch of {union} takes")


def _takes(kind: AvroType, column: pa.DataType, path: str) -> bool:
    try:
        _value(kind, column, path)
    except ConfigError:
        return False
    return True


def _value(kind: AvroType, column: pa.DataType, path: str) -> Write:
    if kind.kind == "null":
        return lambda given, out: None
    if kind.kind == "record" and pa.types.is_struct(column):
        return _record(kind, list(column), f"{path}.")
    if kind.kind == "array" and pa.types.is_list(column):
        return _array(_nullable(kind.item, column.value_type, f"{path}[…]"))
    if kind.kind == "map" and pa.types.is_map(column) and column.key_type == pa.string():
        return _map(_nullable(kind.item, column.item_type, f"{path}[…]"))
    natural = natural_type(kind)
    if natural is None or kind.kind in ("record", "array", "map"):
        raise ConfigError(f"column {path} is {spark_type(column)}, but the schema has {kind}")
    require_convertible(path, column, natural)
    return _converted(kind, fit(natural) if natural != column else None, path)


def _converted(kind: AvroType, convert: Fit | None, path: str) -> Write:
    write = _scalar(kind)

    def converted(given: Any, out: bytearray) -> None:
        try:
            write(given if convert is None else convert(given), out)
        except MisfitError as error:
            raise MisfitError(f"{path}: {error}") from None

    return converted


def _scalar(kind: AvroType) -> Write:
    if kind.logical in _MILLIS:
        return _millis
    if kind.logical == "decimal":
        return _decimal(kind)
    if kind.kind == "enum":
        return _enum(kind)
    if kind.kind == "fixed":
        return _uuid if kind.logical == "uuid" else _fixed(kind)
    return _WRITERS[kind.kind]


def _millis(given: int, out: bytearray) -> None:
    whole, rest = divmod(given, 1000)
    if rest:
        raise MisfitError("a time has microseconds, and the schema milliseconds")
    out += long_bytes(whole)


def _decimal(kind: AvroType) -> Write:
    def write(given: Decimal, out: bytearray) -> None:
        unscaled = int(given.scaleb(kind.scale, _EXACT))
        if kind.kind == "fixed":
            try:
                out += unscaled.to_bytes(kind.size, "big", signed=True)
            except OverflowError:
                raise MisfitError(f"{given} does not fit {kind.size} bytes") from None
            return
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        out += long_bytes(size) + unscaled.to_bytes(size, "big", signed=True)

    return write


def _enum(kind: AvroType) -> Write:
    numbers = {symbol: long_bytes(number) for number, symbol in enumerate(kind.symbols)}

    def write(given: str, out: bytearray) -> None:
        if given not in numbers:
            raise MisfitError(f"{given} is not one of {', '.join(kind.symbols)}")
        out += numbers[given]

    return write


def _fixed(kind: AvroType) -> Write:
    def write(given: bytes, out: bytearray) -> None:
        if len(given) != kind.size:
            raise MisfitError(f"{len(given)} bytes are not {kind.size}")
        out += given

    return write


def _uuid(given: str, out: bytearray) -> None:
    try:
        out += UUID(given).bytes
    except ValueError:
        raise MisfitError(f"{given} is no UUID") from None


def _array(element: Write) -> Write:
    def write(given: list[Any], out: bytearray) -> None:
        if given:
            out += long_bytes(len(given))
            for each in given:
                element(each, out)
        out.append(0)

    return write


def _map(element: Write) -> Write:
    def write(given: list[tuple[str, Any]], out: bytearray) -> None:
        if given:
            out += long_bytes(len(given))
            for name, each in given:
                _write_text(name, out)
                element(each, out)
        out.append(0)

    return write


def long_bytes(number: int) -> bytes:
    """A whole number as a zigzag varint."""
    raw = (number << 1) ^ (number >> 63)
    if raw < 0x80:
        return bytes((raw,))
    found = bytearray()
    while raw >= 0x80:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    found.append(raw)
    return bytes(found)


def _write_bytes(given: bytes, out: bytearray) -> None:
    out += long_bytes(len(given))
    out += given


def _write_text(given: str, out: bytearray) -> None:
    _write_bytes(given.encode(), out)


def _write_long(given: int, out: bytearray) -> None:
    out += long_bytes(given)


_WRITERS: dict[str, Write] = {
    "boolean": lambda given, out: out.append(given),
    "int": _write_long,
    "long": _write_long,
    "float": lambda given, out: out.extend(_FLOAT.pack(given)),
    "double": lambda given, out: out.extend(_DOUBLE.pack(given)),
    "string": _write_text,
    "bytes": _write_bytes,
}
