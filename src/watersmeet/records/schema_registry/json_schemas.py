"""JSON Schema: what is wrong with a document, and schemas for columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from watersmeet.records.schema_registry.client import Schema, UnknownSchemaError

#: Says what is wrong with a document, or None.
Check: TypeAlias = Callable[[bytes], str | None]

_SHOWN = 200


@lru_cache(maxsize=1_000)
def check_of(schema: Schema) -> Check:
    """Return what checks documents of a schema; ``UnknownSchemaError`` if the schema cannot be used."""
    from jsonschema import SchemaError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import Draft7Validator, validator_for
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    def resource(text: str) -> Any:
        return Resource.from_contents(_document(text), default_specification=DRAFT7)

    content = _document(schema.text)
    kind = validator_for(content, default=Draft7Validator)
    try:
        kind.check_schema(content)
    except SchemaError as error:
        raise UnknownSchemaError(f"the schema is not valid JSON Schema: {error.message[:_SHOWN]}") from None
    # nothing else is fetched: what a schema refers to is in the registry, or is not there
    known = Registry().with_resources([(name, resource(text)) for name, text in schema.references])
    validator = kind(content, registry=known)

    def check(data: bytes) -> str | None:
        try:
            document = json.loads(data.decode(), parse_constant=_refused)
        except UnicodeDecodeError:
            return "not valid UTF-8"
        except (ValueError, RecursionError):
            return "not valid JSON"
        try:
            error = best_match(validator.iter_errors(document))
        except (Unresolvable, RecursionError) as failure:
            return f"the schema cannot be used: {str(failure)[:_SHOWN]}"
        except OverflowError:
            return "a number is too large to be checked"
        return None if error is None else _shown(f"{error.json_path}: {error.message[:_SHOWN]}")

    return check


def _shown(text: str) -> str:
    """A text without halves of characters, which JSON may name, but no column may have."""
    return text.encode(errors="replace").decode()


def _document(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        raise UnknownSchemaError("the schema is not valid JSON") from None
    if not isinstance(found, dict | bool):
        raise UnknownSchemaError("the schema is not a JSON object")
    return found


def _refused(name: str) -> Any:
    raise ValueError(name)  # NaN and infinities are no JSON


def schema_for(columns: pa.Schema, name: str) -> str:
    """The schema of an object with a property for each column, which may be null."""
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_object(list(columns))})


def _object(fields: list[pa.Field]) -> dict[str, Any]:
    properties = {each.name: _or_null(_written(each.type)) for each in fields}
    return {"type": "object", "properties": properties}


def _or_null(written: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, written]}


def _written(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return _object(list(kind))
    if pa.types.is_list(kind):
        return {"type": "array", "items": _or_null(_written(kind.value_type))}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _or_null(_written(kind.item_type))}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind):
        # NaN and infinities are written as text
        return {"oneOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
    if pa.types.is_decimal(kind):
        return {"type": "number"}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    return {"type": "string"} | _FORMATS.get(kind, {})


_FORMATS = {pa.date32(): {"format": "date"}, pa.timestamp("us", tz="UTC"): {"format": "date-time"}}
