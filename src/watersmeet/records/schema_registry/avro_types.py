"""Avro schemas as trees of types, with all names resolved (Avro's specification, version 1.12)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_MOST_LEVELS = 200
_MOST_DIGITS = 38


class SchemaError(Exception):
    """A schema cannot be used; the text says why."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A type: one of ``PRIMITIVES``, or record, enum, fixed, array, map, union.

    Only a complex type has some of the later fields.  A record may contain itself.
    """

    kind: str
    logical: str = ""
    name: str = ""
    aliases: frozenset[str] = frozenset()
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    element: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    precision: int = 0
    scale: int = 0

    @property
    def inner(self) -> AvroType:
        """The only branch beside null of a union; otherwise the type itself."""
        others = [branch for branch in self.branches if branch.kind != "null"]
        return others[0] if len(others) == 1 else self

    @property
    def has_null(self) -> bool:
        """Whether null is a value of it."""
        return self.kind == "null" or any(branch.kind == "null" for branch in self.branches)

    @property
    def item(self) -> AvroType:
        """The type of the elements of an array, or of the values of a map."""
        assert self.element is not None
        return self.element

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        if self.kind == "union":
            return f"[{', '.join(map(str, self.branches))}]"
        shown = f"{self.kind} {self.name}" if self.name else self.kind
        return f"{shown} ({self.logical})" if self.logical else shown


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record; ``default`` is a JSON value."""

    name: str
    type: AvroType
    aliases: frozenset[str] = frozenset()
    has_default: bool = False
    default: Any = None


def avro_type(text: str, references: Iterable[tuple[str, str]] = ()) -> AvroType:
    """Read a schema, with those that it refers to before it; raises ``SchemaError``."""
    names: dict[str, AvroType] = {}
    for _, each in references:
        _Reading(names).type(_json(each), "")
    return _Reading(names).type(_json(text), "")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"it is not valid JSON ({error})") from None


@dataclass(slots=True)
class _Reading:
    names: dict[str, AvroType]
    levels: int = 0

    def type(self, schema: Any, namespace: str) -> AvroType:
        self.levels += 1
        if self.levels > _MOST_LEVELS:
            raise SchemaError(f"it has more than {_MOST_LEVELS} levels")
        try:
            return self._type(schema, namespace)
        finally:
            self.levels -= 1

    def _type(self, schema: Any, namespace: str) -> AvroType:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            branches = tuple(self.type(each, namespace) for each in schema)
            if not branches or any(each.kind == "union" for each in branches):
                raise SchemaError("a union is empty, or has a union in it")
            return AvroType("union", branches=branches)
        if not isinstance(schema, dict):
            raise SchemaError(f"{schema!r} is not a type")
        match schema.get("type"):
            case "record" | "error":
                return self._record(schema, namespace)
            case "enum":
                return self._enum(schema, namespace)
            case "fixed":
                return self._fixed(schema, namespace)
            case "array":
                return AvroType("array", element=self.type(schema.get("items"), namespace))
            case "map":
                return AvroType("map", element=self.type(schema.get("values"), namespace))
            case str(name) if name in PRIMITIVES:
                return _with_logical(AvroType(name), schema)
            case other:
                return self.type(other, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise SchemaError(f"there is no type {full}")
        return found

    def _add(self, kind: str, schema: Mapping[str, Any], namespace: str) -> AvroType:
        name, own = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(own, str):
            raise SchemaError(f"a {kind} has no name")
        full = name if "." in name or not own else f"{own}.{name}"
        if full in self.names:
            raise SchemaError(f"the name {full} is defined twice")
        aliases = frozenset(each.rpartition(".")[2] for each in _texts(schema, "aliases"))
        found = self.names[full] = AvroType(kind, name=full, aliases=aliases)
        return found

    def _record(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        found = self._add("record", schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(f"the record {found.name} has no fields")
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                raise SchemaError(f"a field of the record {found.name} has no name or no type")
            found.fields.append(
                AvroField(
                    each["name"],
                    self.type(each["type"], found.name.rpartition(".")[0]),
                    frozenset(_texts(each, "aliases")),
                    "default" in each,
                    each.get("default"),
                )
            )
        if len({each.name for each in found.fields}) < len(found.fields):
            raise SchemaError(f"the record {found.name} has two fields of one name")
        return found

    def _enum(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        found = self._add("enum", schema, namespace)
        found.symbols, default = _texts(schema, "symbols"), schema.get("default")
        found.default = default if isinstance(default, str) else None
        return found

    def _fixed(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        found, size = self._add("fixed", schema, namespace), schema.get("size")
        if type(size) is not int or size < 0:
            raise SchemaError(f"the fixed type {found.name} has no size")
        found.size = size
        return _with_logical(found, schema)


def _texts(schema: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = schema.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise SchemaError(f"{name} is not a list of names")
    return tuple(found)


_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
}


def _with_logical(found: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """Note the logical type; one that is unknown or does not fit counts for nothing, as the specification has it."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str) or found.kind not in _LOGICAL.get(logical, ()):
        return found
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= _MOST_DIGITS:
            return found
        found.precision, found.scale = precision, scale
    if logical == "uuid" and found.kind == "fixed" and found.size != 16:
        return found
    found.logical = logical
    return found
