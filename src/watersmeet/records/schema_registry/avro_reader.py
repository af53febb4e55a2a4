"""Avro records, each read as its writer's schema says and resolved to a reader's schema.

Two schemas become one function, composed of those of their parts.  It takes bytes and a place, and returns a value and
the place after it.  Fields are matched by name or alias; numbers are promoted; what a record lacks is the default of
the reader's schema.  Times and decimals keep their value: the writer's unit and scale count, not the reader's.

    writer {a: int, b: string}, reader {a: long, c: long = 7}: the record (1, "x") is {a: 1, c: 7}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from watersmeet.records.schema_registry.avro_bytes import Read, array_of, map_of, raw, read_long
from watersmeet.records.schema_registry.avro_conversions import AvroError, conversion
from watersmeet.records.schema_registry.avro_defaults import default_of
from watersmeet.records.schema_registry.avro_types import AvroField, AvroType

_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


def reader_of(writer: AvroType, reader: AvroType) -> Read:
    """Return what reads values of ``writer`` as those of ``reader``; ``AvroError`` if none can be resolved."""
    return _Resolver().read(writer, reader)


class _Resolver:
    def __init__(self) -> None:
        self._records: dict[tuple[int, int], list[Read]] = {}

    def read(self, writer: AvroType, reader: AvroType) -> Read:
        if writer.kind == "union":
            return self._union(writer, reader)
        if reader.kind == "union":
            return self.read(writer, _branch(writer, reader))
        _require_same(writer, reader)
        match writer.kind:
            case "record":
                return self._record(writer, reader)
            case "array":
                return array_of(self.read(writer.item, reader.item))
            case "map":
                return map_of(self.read(writer.item, reader.item))
            case "enum":
                return _enum(writer, reader)
        return _converted(raw(writer), conversion(writer, reader))

    def _union(self, writer: AvroType, reader: AvroType) -> Read:
        """Only the branch that a record has need be resolvable."""
        branches: list[Read] = []
        for branch in writer.branches:
            try:
                branches.append(self.read(branch, reader))
            except AvroError as error:
                branches.append(_failing(str(error)))

        def union(data: bytes, place: int) -> tuple[Any, int]:
            number, place = read_long(data, place)
            if not 0 <= number < len(branches):
                raise AvroError(f"the union has no branch {number}")
            return branches[number](data, place)

        return union

    def _record(self, writer: AvroType, reader: AvroType) -> Read:
        known = self._records.get((id(writer), id(reader)))
        if known is None:
            known = self._records[id(writer), id(reader)] = []
            try:
                known.append(self._fields(writer, reader))
            except AvroError:
                del self._records[id(writer), id(reader)]
                raise
        # a record within itself is not there yet
        return known[0] if known else lambda data, place: known[0](data, place)  # noqa: PLW0108

    def _fields(self, writer: AvroType, reader: AvroType) -> Read:
        steps: list[tuple[str | None, Read]] = []
        left = list(reader.fields)
        for field in writer.fields:
            wanted = field_for(field.name, reader)
            if wanted is None or wanted not in left:
                steps.append((None, self.read(field.type, field.type)))
                continue
            left.remove(wanted)
            steps.append((wanted.name, self._field(field, wanted)))
        given = {field.name: _default(field, reader) for field in left}

        def record(data: bytes, place: int) -> tuple[dict[str, Any], int]:
            found = dict(given)
            for name, read in steps:
                value, place = read(data, place)
                if name is not None:
                    found[name] = value
            return found, place

        return record

    def _field(self, writer: AvroField, reader: AvroField) -> Read:
        try:
            return self.read(writer.type, reader.type)
        except AvroError as error:
            raise AvroError(f"{reader.name}: {error}") from None


def field_for(name: str, reader: AvroType) -> AvroField | None:
    """The field of the reader's record that takes the writer's field of that name."""
    found = next((field for field in reader.fields if field.name == name), None)
    return found or next((field for field in reader.fields if name in field.aliases), None)


def _default(field: AvroField, reader: AvroType) -> Any:
    if not field.has_default:
        raise AvroError(f"it has no field {field.name}, for which {reader.name} has no default")
    return default_of(field.type, field.default)


# -- which type takes which --------------------------------------------------------------------------------------------


def _branch(writer: AvroType, reader: AvroType) -> AvroType:
    """The first branch of a reader's union of the same type, else the first that takes it by promotion."""
    same = [branch for branch in reader.branches if _is_same(writer, branch)]
    others = [branch for branch in reader.branches if (writer.kind, branch.kind) in _PROMOTIONS]
    if not same and not others:
        raise AvroError(f"{writer} cannot be read as {reader}")
    return (same or others)[0]


def _is_same(writer: AvroType, reader: AvroType) -> bool:
    if writer.kind != reader.kind or writer.size != reader.size:
        return False
    return writer.kind not in ("record", "enum", "fixed") or (
        writer.short_name == reader.short_name or writer.short_name in reader.aliases
    )


def _require_same(writer: AvroType, reader: AvroType) -> None:
    if not _is_same(writer, reader) and (writer.kind, reader.kind) not in _PROMOTIONS:
        raise AvroError(f"{writer} cannot be read as {reader}")


# -- values ------------------------------------------------------------------------------------------------------------


def _converted(read: Read, convert: Callable[[Any], Any] | None) -> Read:
    if convert is None:
        return read

    def converted(data: bytes, place: int) -> tuple[Any, int]:
        raw, place = read(data, place)
        return convert(raw), place

    return converted


def _enum(writer: AvroType, reader: AvroType) -> Read:
    known = [
        symbol if symbol in reader.symbols else reader.default if reader.default in reader.symbols else None
        for symbol in writer.symbols
    ]

    def enum(data: bytes, place: int) -> tuple[str, int]:
        number, place = read_long(data, place)
        if not 0 <= number < len(known):
            raise AvroError(f"{writer.name} has no symbol {number}")
        symbol = known[number]
        if symbol is None:
            raise AvroError(f"{reader.name} has no symbol {writer.symbols[number]}")
        return symbol, place

    return enum


def _failing(text: str) -> Read:
    def failing(_data: bytes, _place: int) -> tuple[Any, int]:
        raise AvroError(text)

    return failing
