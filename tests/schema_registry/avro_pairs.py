"""Random Avro schemas, values of them, and schemas that they become in time."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

_NUMBERS = ["int", "long", "float", "double"]
_WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
#: Bytes are text too, because Java reads any bytes as a string.
_VALUES: dict[str, list[Any]] = {
    "bytes": [b"", "ä".encode(), b"x"],
    "string": ["", "a", "ä🙂", "x" * 70],
    "null": [None],
    "boolean": [False, True],
    "int": [0, -1, 63, -64, 64, 2**31 - 1, -(2**31)],
    "long": [0, 1, -(2**63), 2**63 - 1, 2**53 + 1],
    "float": [0.0, -1.5, math.inf],
    "double": [0.1, -0.0, math.inf, 1e300],
}
_TEXTS = {"string": "bytes", "bytes": "string"}


class Schemas:
    """Schemas whose named types are each defined once."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(repr(seed))
        self._names = 0

    def record(self, depth: int = 2) -> dict[str, Any]:
        count = self.random.randint(0 if depth < 2 else 1, 4)
        fields = [{"name": f"f{n}", "type": self.type(depth)} for n in range(count)]
        return {"type": "record", "name": self._name(), "fields": fields}

    def type(self, depth: int) -> Any:
        kinds = [*_NUMBERS, "string", "bytes", "boolean", "null", "enum", "fixed"]
        if depth > 0:
            kinds += ["array", "map", "record", "union", "union"]
        match kind := self.random.choice(kinds):
            case "enum":
                return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]}
            case "fixed":
                return {"type": "fixed", "name": self._name(), "size": self.random.randint(0, 3)}
            case "array":
                return {"type": "array", "items": self.type(depth - 1)}
            case "map":
                return {"type": "map", "values": self.type(depth - 1)}
            case "record":
                return self.record(depth - 1)
            case "union":
                return self._union(depth)
        return kind

    def _union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {"null": "null"} if self.random.random() < 0.8 else {}
        for _ in range(self.random.randint(1, 3)):
            found = self.type(0 if depth < 2 else depth - 2)
            branches.setdefault(found if isinstance(found, str) else found["type"], found)
        listed = list(branches.values())
        self.random.shuffle(listed)
        return listed

    def _name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    # -- later versions --------------------------------------------------------------------------------------------

    def later(self, schema: Any) -> Any:
        """What a schema may become; most, not all, records of it can be read by that."""
        schema = copy.deepcopy(schema)
        if isinstance(schema, list):
            found = [self.later(each) for each in schema]
            self.random.shuffle(found)
            if any(isinstance(each, list) for each in found) or len({str(_kind(each)) for each in found}) < len(found):
                return schema
            return found
        if isinstance(schema, str):
            return self._later_leaf(schema)
        match schema["type"]:
            case "record":
                self._change_fields(schema)
            case "array":
                schema["items"] = self.later(schema["items"])
            case "map":
                schema["values"] = self.later(schema["values"])
            case "enum" if self.random.random() < 0.3:
                schema["symbols"] = self.random.choice([["C", "A"], ["A", "B", "C", "D"]])
                if self.random.random() < 0.7:
                    schema["default"] = "A"
        return schema

    def _later_leaf(self, kind: str) -> Any:
        choice = self.random.random()
        if choice < 0.25 and kind in _WIDER:
            return self.random.choice(_WIDER[kind])
        if choice < 0.3 and kind in _TEXTS:
            return _TEXTS[kind]
        return ["null", kind] if choice > 0.85 and kind != "null" else kind

    def _change_fields(self, record: dict[str, Any]) -> None:
        fields = [
            {**each, "type": self.later(each["type"])} for each in record["fields"] if self.random.random() < 0.85
        ]
        for each in fields:
            if self.random.random() < 0.15:
                each["aliases"], each["name"] = [each["name"]], f"{each['name']}x"
        fields.extend(
            {"name": f"n{n}", "type": (kind := self.type(1)), "default": self.default(kind)}
            for n in range(self.random.randint(0, 2))
        )
        self.random.shuffle(fields)
        record["fields"] = fields

    def default(self, schema: Any) -> Any:
        """A value as JSON, of a union's first branch."""
        if isinstance(schema, list):
            return self.default(schema[0])
        kind = _kind(schema)
        match kind:
            case "record":
                return {each["name"]: self.default(each["type"]) for each in schema["fields"]}
            case "array":
                return [self.default(schema["items"]) for _ in range(self.random.randint(0, 2))]
            case "map":
                return {"k": self.default(schema["values"])} if self.random.random() < 0.5 else {}
            case "enum":
                return self.random.choice(schema["symbols"])
            case "fixed":
                return "ÿ" * schema["size"]
            case "bytes":
                return self.random.choice(["", "\u0000ÿ"])
            case "string":
                return self.random.choice(["", "ä🙂"])
            case "null":
                return None
            case "boolean":
                return True
        return self.random.choice([0, -3, 7])

    # -- values ----------------------------------------------------------------------------------------------------

    def value(self, schema: Any) -> Any:
        """A value as fastavro takes it; of a union, a pair of branch and value where it needs to be told."""
        r = self.random
        if isinstance(schema, list):
            return self._of_union(schema)
        match _kind(schema):
            case "record":
                return {each["name"]: self.value(each["type"]) for each in schema["fields"]}
            case "array":
                return [self.value(schema["items"]) for _ in range(r.choice([0, 1, 3]))]
            case "map":
                return {f"k{n}": self.value(schema["values"]) for n in range(r.choice([0, 1, 3]))}
            case "enum":
                return r.choice(schema["symbols"])
            case "fixed":
                return r.randbytes(schema["size"])
            case kind:
                return r.choice(_VALUES[kind])

    def _of_union(self, schema: list[Any]) -> Any:
        branch = self.random.choice(schema)
        value = self.value(branch)
        if branch == "null":
            return None
        return (_kind(branch) if isinstance(branch, str) else branch.get("name", _kind(branch)), value)


def _kind(schema: Any) -> Any:
    return schema if isinstance(schema, str) else schema["type"]
