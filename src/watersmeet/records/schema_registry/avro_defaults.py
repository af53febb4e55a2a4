"""The default values of Avro's schemas, which stand there as JSON."""

from __future__ import annotations

from typing import Any

from watersmeet.records.schema_registry.avro_conversions import AvroError, conversion
from watersmeet.records.schema_registry.avro_types import AvroType

_INFINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def default_of(kind: AvroType, json: Any) -> Any:
    """The value that a JSON value stands for; ``AvroError`` if it is none of that type."""
    if kind.kind == "union":
        for branch in kind.branches:
            try:
                return default_of(branch, json)
            except AvroError:
                continue
        raise _wrong(kind, json)
    if kind.kind == "record":
        return _record(kind, json)
    if kind.kind == "array" and isinstance(json, list):
        return [default_of(kind.item, each) for each in json]
    if kind.kind == "map" and isinstance(json, dict):
        return {name: default_of(kind.item, each) for name, each in json.items()}
    raw = _raw(kind, json)
    convert = conversion(kind, kind)
    return raw if convert is None else convert(raw)


def _record(kind: AvroType, json: Any) -> dict[str, Any]:
    if not isinstance(json, dict):
        raise _wrong(kind, json)
    found = {}
    for field in kind.fields:
        if field.name not in json and not field.has_default:
            raise _wrong(kind, json)
        found[field.name] = default_of(field.type, json.get(field.name, field.default))
    return found


def _raw(kind: AvroType, json: Any) -> Any:
    """What would be written for it."""
    match kind.kind:
        case "null" if json is None:
            return None
        case "boolean" if isinstance(json, bool):
            return json
        case "int" | "long" if type(json) is int and abs(json) < 2 ** (31 if kind.kind == "int" else 63):
            return json
        case "float" | "double" if type(json) in (int, float):
            return float(json)
        case "float" | "double" if json in _INFINITE:
            return _INFINITE[json]
        case "string" if isinstance(json, str):
            return json
        case "enum" if json in kind.symbols:
            return json
        case "bytes" | "fixed" if isinstance(json, str):
            raw = _latin(kind, json)
            if kind.kind == "bytes" or len(raw) == kind.size:
                return raw
    raise _wrong(kind, json)


def _latin(kind: AvroType, json: str) -> bytes:
    try:
        return json.encode("latin-1")
    except UnicodeEncodeError:
        raise _wrong(kind, json) from None


def _wrong(kind: AvroType, json: Any) -> AvroError:
    return AvroError(f"the default {json!r} is no value of {kind}")
