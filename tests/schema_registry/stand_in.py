"""A registry in the memory of this process: what it is asked for is in the client's cache already."""

from __future__ import annotations

import itertools
from typing import Any

from watersmeet.records.schema_registry import client
from watersmeet.records.schema_registry.client import Schema, SchemaRegistry, SchemaType

_numbers = itertools.count(1)


class KnownSchemas:
    """A registry without a server; asking it for anything but the schemas that were added is an outage."""

    def __init__(self) -> None:
        self.registry = SchemaRegistry((f"http://127.0.0.1:1/{next(_numbers)}",))

    def add(self, text: str, type: SchemaType = SchemaType.AVRO, references: Any = ()) -> tuple[int, Schema]:
        """Add a schema; its number and itself come back."""
        number, schema = next(_numbers), Schema(type, text, tuple(references))
        client._schemas[self.registry, number] = schema
        return number, schema
