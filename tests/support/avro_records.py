"""Random Avro schemas and records, good and hostile, and a slow reader that says what Spark makes of each record."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

INTS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
UTC, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
YEAR_1900 = -2_208_988_800_000
SYMBOLS = ["RED", "green", "_3"]
ENUM = {"type": "enum", "name": "color", "symbols": SYMBOLS}
FIXED = {"type": "fixed", "name": "three", "size": 3}


def logical(base: str, name: str) -> dict[str, str]:
    return {"type": base, "logicalType": name}


#: Written types, the columns that take them, and the numbers that need no Spark.
LEAVES: list[tuple[Any, tuple[pa.DataType, ...], tuple[int, int]]] = [
    ("null", (), (0, 0)),
    ("boolean", (pa.bool_(),), (0, 1)),
    ("int", INTS, (-(2**31), 2**31 - 1)),
    ("long", INTS, (-(2**63), 2**63 - 1)),
    ("float", (pa.float32(),), (0, 0)),
    ("double", (pa.float64(),), (0, 0)),
    ("string", (pa.string(),), (0, 0)),
    ({"type": "string", "avro.java.string": "String"}, (pa.string(),), (0, 0)),
    (logical("string", "uuid"), (pa.string(),), (0, 0)),
    ("bytes", (pa.binary(),), (0, 0)),
    (ENUM, (pa.string(),), (0, 2)),
    (FIXED, (pa.binary(),), (0, 0)),
    (logical("int", "date"), (pa.date32(),), (-141_427, 2**31 - 1)),
    (logical("long", "timestamp-millis"), (UTC,), (YEAR_1900, (2**63 - 1) // 1000)),
    (logical("long", "timestamp-micros"), (UTC,), (YEAR_1900 * 1000, 2**63 - 1)),
    (logical("long", "local-timestamp-millis"), (LOCAL,), (-(2**63 // 1000), 2**63 // 1000)),
    (logical("long", "local-timestamp-micros"), (LOCAL,), (-(2**63), 2**63 - 1)),
]


class BadRecordError(Exception):
    """The bytes are not one record of the schema."""


@dataclass(frozen=True)
class TestField:
    """A field: its type without null, the branch of null, its column's type (None: undeclared) and good numbers."""

    __test__ = False

    name: str
    type: Any
    null_branch: int | None
    column: pa.DataType | None
    numbers: tuple[int, int]

    def schema(self) -> dict[str, Any]:
        branches = ["null", self.type] if self.null_branch == 0 else [self.type, "null"]
        return {"name": self.name, "type": self.type if self.null_branch is None else branches}


def schema_of(fields: Sequence[TestField]) -> str:
    return json.dumps({"type": "record", "name": "r", "namespace": "a.b", "fields": [each.schema() for each in fields]})


def columns_of(fields: Sequence[TestField]) -> pa.Schema:
    """The declared columns, in another order than the fields."""
    return pa.schema([pa.field(each.name.upper(), each.column) for each in reversed(fields) if each.column])


def random_fields(rng: random.Random) -> list[TestField]:
    """Some fields, one at least with a column."""
    fields: list[TestField] = []
    leaves = list(LEAVES)
    while not any(field.column for field in fields) or (leaves and rng.random() < 0.7):
        leaf = rng.choice(leaves)
        if leaf[0] in (ENUM, FIXED):
            leaves.remove(leaf)  # a name may be defined once
        column = rng.choice(leaf[1]) if leaf[1] and rng.random() < 0.8 else None
        low, high = leaf[2]
        if column in INTS:
            low, high = max(low, -(2 ** (column.bit_width - 1))), min(high, 2 ** (column.bit_width - 1) - 1)
        null_branch = None if leaf[0] == "null" else rng.choice([None, 0, 1])
        fields.append(TestField(f"f{len(fields)}", leaf[0], null_branch, column, (low, high)))
    return fields


def every_leaf(null_branch: int | None) -> list[TestField]:
    """A field and a column of each type."""
    return [
        TestField(f"f{n}", leaf, None if leaf == "null" else null_branch, columns[-1] if columns else None, numbers)
        for n, (leaf, columns, numbers) in enumerate(LEAVES)
    ]


def zigzag(number: int) -> bytes:
    """A number of 64 bits as a varint."""
    return varint(((number << 1) ^ (number >> 63)) & (2**64 - 1))


def varint(raw: int) -> bytes:
    octets = bytearray()
    while raw > 0x7F:
        octets.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*octets, raw])


def good_record(rng: random.Random, fields: Sequence[TestField]) -> bytes:
    """A record that needs no Spark."""
    return b"".join(_good_field(rng, field) for field in fields)


def _good_field(rng: random.Random, field: TestField) -> bytes:
    if field.null_branch is None:
        return _good_value(rng, field)
    if rng.random() < 0.3:
        return zigzag(field.null_branch)
    return zigzag(1 - field.null_branch) + _good_value(rng, field)


def _good_value(rng: random.Random, field: TestField) -> bytes:
    match _base(field.type):
        case "null":
            return b""
        case "boolean":
            return bytes([rng.randrange(2)])
        case "float":
            return struct.pack("<f", _float(rng))
        case "double":
            return struct.pack("<d", _float(rng))
        case "string":
            text = "".join(rng.choices("abcdefghijklmno\0é€𝄞", k=_length(rng))).encode()
            return zigzag(len(text)) + text
        case "bytes":
            octets = rng.randbytes(_length(rng))
            return zigzag(len(octets)) + octets
        case "fixed":
            return rng.randbytes(3)
        case _:
            low, high = field.numbers
            near = rng.choice([low, high, 0, -1, 1, 63, 64, rng.getrandbits(rng.randrange(1, 64))])
            return zigzag(min(max(near + rng.randrange(-2, 3), low), high))


def _float(rng: random.Random) -> float:
    return rng.choice([0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), rng.gauss(0, 1e6)])


def _length(rng: random.Random) -> int:
    return rng.choice([0, 1, 3, 20, 63, 64, 200])


def hostile_record(rng: random.Random, fields: Sequence[TestField]) -> bytes:
    """A record that may be good, or bad in one of many ways."""
    octets = good_record(rng, fields)
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(octets) + 1)
        match rng.randrange(7):
            case 0:
                octets = octets[:at]
            case 1:
                octets += rng.randbytes(rng.randrange(1, 12))
            case 2:
                octets = octets[:at] + rng.randbytes(1) + octets[at + 1 :]
            case 3 if at < len(octets):
                octets = octets[:at] + bytes([octets[at] ^ 1 << rng.randrange(8)]) + octets[at + 1 :]
            case 4:  # a varint in the place of anything: long, too long, negative, huge
                octets = octets[:at] + _odd_varint(rng) + octets[at + rng.randrange(3) :]
            case 5 if at < len(octets):  # the same number in more bytes than it needs
                more = rng.randrange(1, 10) * b"\x80"
                octets = octets[:at] + bytes([octets[at] | 0x80]) + more[1:] + b"\0" + octets[at + 1 :]
            case _:
                octets = rng.randbytes(rng.randrange(30))
    return octets


def _odd_varint(rng: random.Random) -> bytes:
    return rng.choice(
        [
            zigzag(rng.choice([-1, -(2**63), 2**63 - 1, 2**31, -(2**31) - 1, 2**31 - 1, 3, YEAR_1900 - 1])),
            rng.choice([b"\x80", b"\xff"]) * rng.randrange(3, 12) + rng.randbytes(1),
            rng.choice([b"\x80", b"\xff"]) * rng.choice([4, 9]) + bytes([rng.randrange(4) << rng.randrange(7)]),
        ]
    )


def expected_row(fields: Sequence[TestField], octets: bytes) -> list[Any] | None:
    """The row as ``plain`` has it, by the rules of Avro for Java and of Spark; None if it is bad, or bad text."""
    reader = _Reader(octets)
    try:
        values = {field.name.upper(): _fitting(reader.field(field), field.column) for field in fields}
        reader.end()
    except (BadRecordError, UnicodeDecodeError):
        return None
    return [values[name] for name in columns_of(fields).names]


def longest_value(fields: Sequence[TestField], octets: bytes) -> int:
    """The longest value that a reader allocates memory for, as the record's lengths have it."""
    reader = _Reader(octets)
    with contextlib.suppress(BadRecordError):
        for field in fields:
            reader.field(field)
    return reader.longest


def _fitting(value: Any, column: pa.DataType | None) -> Any:
    if value is None or column is None:
        return value
    if column in INTS and not -(2 ** (column.bit_width - 1)) <= value < 2 ** (column.bit_width - 1):
        raise BadRecordError
    return value.decode() if column == pa.string() and isinstance(value, bytes) else value


class _Reader:
    def __init__(self, octets: bytes) -> None:
        self._octets, self._at, self.longest = octets, 0, 0

    def end(self) -> None:
        if self._at != len(self._octets):
            raise BadRecordError

    def field(self, field: TestField) -> Any:
        if field.null_branch is not None:
            branch = self._number(5)
            if branch not in (0, 1):
                raise BadRecordError
            if branch == field.null_branch:
                return None
        return self._value(field.type)

    def _value(self, type_: Any) -> Any:
        match _base(type_):
            case "null":
                return None
            case "boolean":
                return self._bytes(1) == b"\1"
            case "float":
                return repr(struct.unpack("<f", self._bytes(4))[0])
            case "double":
                return repr(struct.unpack("<d", self._bytes(8))[0])
            case "string" | "bytes":
                return self._bytes(self._number(10))
            case "fixed":
                return self._bytes(3)
            case "enum":
                number = self._number(5)
                if not 0 <= number < len(SYMBOLS):
                    raise BadRecordError
                return SYMBOLS[number]
            case "int":
                return self._number(5)
        number = self._number(10)
        if isinstance(type_, dict) and type_["logicalType"].endswith("millis"):
            number *= 1000
        if not -(2**63) <= number < 2**63:
            raise BadRecordError
        return number

    def _bytes(self, count: int) -> bytes:
        self.longest = max(self.longest, count)
        found = self._octets[self._at : self._at + count]
        if count < 0 or len(found) < count:
            raise BadRecordError
        self._at += count
        return found

    def _number(self, most_bytes: int) -> int:
        raw: int = 0
        for n in range(most_bytes):
            octet = self._bytes(1)[0]
            raw |= (octet & 0x7F) << 7 * n
            if octet < 0x80:
                raw &= 2 ** (32 if most_bytes == 5 else 64) - 1
                return (raw >> 1) ^ -(raw & 1)
        raise BadRecordError


def _base(type_: Any) -> str:
    return type_ if isinstance(type_, str) else type_["type"]


def plain(rows: pa.Table) -> list[list[Any]]:
    """Rows as lists of values that can be compared: times and dates as numbers, floats as text."""
    columns = [_plain_column(column) for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    is_float = pa.types.is_floating(column.type)
    return [repr(value) if is_float and value is not None else value for value in values]
