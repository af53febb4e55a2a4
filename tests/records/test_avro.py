"""The Avro decoder against a slow reader: rows are what Spark would make of them, and good records are not left."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.avro_records import (
    ENUM,
    FIXED,
    LEAVES,
    columns_of,
    expected_row,
    good_record,
    hostile_record,
    logical,
    plain,
    random_fields,
    schema_of,
    zigzag,
)
from watersmeet.records.avro import AvroDecoder, avro_decoder
from watersmeet.records.decoder import Decoded

UTC = pa.timestamp("us", tz="UTC")


def schema(*types: Any, **attributes: Any) -> str:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "r", "fields": fields, **attributes})


def decoder_of(schema_json: str, **columns: pa.DataType) -> AvroDecoder:
    found = avro_decoder(schema_json, pa.schema(columns))
    assert found is not None
    return found


def checked(decoder: AvroDecoder, values: pa.Array) -> Decoded:
    """The decoder's answer, if it is a valid one."""
    found = decoder.decode(values)
    found.rows.validate(full=True)
    assert found.rows.schema.equals(decoder.columns, check_metadata=True)
    assert found.rows.num_rows == len(found.records)
    assert sorted([*found.records, *found.left]) == list(range(len(values)))
    assert (np.diff(found.records) > 0).all()
    assert (np.diff(found.left) > 0).all()
    return found


@given(st.integers(0, 2**32))
def test_rows_are_those_of_the_slow_reader_and_good_records_are_not_left(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        fields = random_fields(rng)
        decoder = avro_decoder(schema_of(fields), columns_of(fields))
        assert decoder is not None
        good = [good_record(rng, fields) for _ in range(rng.choice([0, 1, 40]))]
        hostile = [hostile_record(rng, fields) for _ in range(rng.choice([0, 100]))]
        values: list[bytes | None] = [*good, *hostile, *[None] * rng.choice([0, 3])]
        must_decode = [True] * len(good) + [False] * (len(values) - len(good))
        order = rng.sample(range(len(values)), len(values))
        around: list[bytes | None] = [b"\x02\x02\x02"] * rng.randrange(3)
        array = pa.array([*around, *(values[n] for n in order), *around], pa.binary())
        found = checked(decoder, array[len(around) : len(around) + len(values)])
        for number, row in zip(found.records, plain(found.rows), strict=True):
            octets = values[order[number]]
            assert octets is not None
            assert row == expected_row(fields, octets), (schema_of(fields), octets)
        assert not [values[order[number]] for number in found.left if must_decode[order[number]]], schema_of(fields)


def good_numbers(leaf: Any) -> list[int]:
    (low, high) = next(numbers for written, _, numbers in LEAVES if written == leaf)
    edges = {0, -1, 1, low, high, *(sign * 2**bits + d for bits in range(64) for sign in (1, -1) for d in (-1, 0, 1))}
    return sorted(number for number in edges if low <= number <= high)


@pytest.mark.parametrize("leaf", ["int", "long", logical("int", "date"), logical("long", "timestamp-millis")], ids=str)
def test_numbers_of_every_length(leaf: Any) -> None:
    column = next(columns for written, columns, _ in LEAVES if written == leaf)[-1]
    numbers = good_numbers(leaf)
    found = checked(decoder_of(schema(leaf), f0=column), pa.array(map(zigzag, numbers), pa.binary()))
    scale = 1000 if "millis" in str(leaf) else 1
    assert plain(found.rows) == [[number * scale] for number in numbers]


GOOD: list[tuple[Any, pa.DataType, bytes, Any]] = [
    ("long", pa.int8(), b"\xff\x01", -128),
    ("int", pa.int64(), b"\xff\xff\xff\xff\x0f", -(2**31)),
    ("long", pa.int64(), b"\x82\x80\x00", 1),  # longer than it need be
    ("long", pa.int64(), b"\x82" + b"\x80" * 8 + b"\x00", 1),
    ("long", pa.int64(), b"\xff" * 9 + b"\x01", -(2**63)),
    (["null", "long"], pa.int64(), b"\x00", None),
    (["long", "null"], pa.int64(), b"\x02", None),
    (["null", "string"], pa.string(), b"\x02\x04\xc3\xa9", "é"),
    ("string", pa.string(), b"\x00", ""),
    ({"type": "string", "connect.version": 1, "doc": "d"}, pa.string(), b"\x02a", "a"),
    ("bytes", pa.binary(), b"\x02\xff", b"\xff"),
    (ENUM, pa.string(), b"\x04", "_3"),
    (FIXED, pa.binary(), b"abc", b"abc"),
    ("double", pa.float64(), b"\0" * 7 + b"\x80", "-0.0"),
]


@pytest.mark.parametrize(("leaf", "column", "octets", "value"), GOOD, ids=lambda each: str(each)[:40])
def test_decoded(leaf: Any, column: pa.DataType, octets: bytes, value: Any) -> None:
    found = checked(decoder_of(schema(leaf), f0=column), pa.array([octets], pa.binary()))
    assert plain(found.rows) == [[value]]


LEFT: list[tuple[Any, pa.DataType, list[bytes | None]]] = [
    ("long", pa.int64(), [None, b"", b"\x80", b"\x02\x00", b"\xff" * 9, b"\xff" * 10, b"\xff" * 9 + b"\x02"]),
    ("long", pa.int64(), [b"\x80" * 10 + b"\x00"]),
    ("long", pa.int8(), [zigzag(128), zigzag(-129)]),
    ("int", pa.int32(), [zigzag(2**31), zigzag(-(2**31) - 1), b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x1f"]),
    ("boolean", pa.bool_(), [b"\x02", b"", b"\xff"]),
    ("float", pa.float32(), [b"abc", b"abcde"]),
    ("string", pa.string(), [b"\x02\xff", b"\x06\xed\xa0\x80", b"\x04a", b"\x01", zigzag(2**31), zigzag(2**63 - 1)]),
    ("string", pa.string(), [zigzag(-(2**63)), zigzag(-1) + b"a", zigzag(2**31 - 1) + b"a"]),
    ("bytes", pa.binary(), [b"\x02", zigzag(-2) + b"ab"]),
    (["null", "int"], pa.int32(), [b"\x04\x02", b"\x01\x02", b"\x01", b"\x80\x00", b"\x02"]),
    (ENUM, pa.string(), [b"\x06", b"\x01"]),
    (FIXED, pa.binary(), [b"ab", b"abcd"]),
    (logical("int", "date"), pa.date32(), [zigzag(-141_428)]),
    (logical("long", "timestamp-micros"), UTC, [zigzag(-2_208_988_800_000_001)]),
    (logical("long", "timestamp-millis"), UTC, [zigzag(2**63 // 1000 + 1), zigzag(-2_208_988_800_001)]),
    (logical("long", "local-timestamp-millis"), pa.timestamp("us"), [zigzag(-(2**63) // 1000), zigzag(2**62)]),
]


@pytest.mark.parametrize(("leaf", "column", "values"), LEFT, ids=lambda each: str(each)[:40])
def test_left_to_spark(leaf: Any, column: pa.DataType, values: list[bytes | None]) -> None:
    found = checked(decoder_of(schema(leaf), f0=column), pa.array(values, pa.binary()))
    assert found.left.tolist() == list(range(len(values)))


def test_a_bad_undeclared_field_leaves_the_record_and_bad_text_in_one_does_not() -> None:
    decoder = decoder_of(schema(logical("long", "timestamp-millis"), "string", "int"), f2=pa.int32())
    good, overflow = zigzag(0) + b"\x02\xff" + zigzag(7), zigzag(2**62) + b"\x00" + zigzag(7)
    found = checked(decoder, pa.array([good, overflow], pa.binary()))
    assert (plain(found.rows), found.left.tolist()) == ([[7]], [1])


def test_no_records_and_records_without_bytes() -> None:
    decoder = decoder_of(schema(["null", "string"], FIXED), f0=pa.string(), f1=pa.binary())
    arrays = [pa.array([], pa.binary()), pa.nulls(3, pa.binary()), pa.array([b"", None, b""], pa.binary())]
    for values in [*arrays, pa.array([b"x"], pa.binary())[1:]]:
        found = checked(decoder, values)
        assert found.left.tolist() == list(range(len(values)))


def test_a_null_that_has_bytes_is_left() -> None:
    _, offsets, octets = pa.array([b"\x02", b"\x04"], pa.binary()).buffers()
    values = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x01"), offsets, octets])
    found = checked(decoder_of(schema("int"), f0=pa.int32()), values)
    assert (plain(found.rows), found.left.tolist()) == ([[1]], [1])


def test_null_texts_take_no_bytes() -> None:
    values = pa.array([b"\x00", b"\x02\x06abc"] * 10, pa.binary())
    (column,) = checked(decoder_of(schema(["null", "string"]), f0=pa.string()), values).rows["f0"].chunks
    assert np.frombuffer(column.buffers()[1], np.int32)[-1] == 30


def test_much_bad_text_is_found_in_each_record() -> None:
    texts = [bytes([0x61 + n % 5, 0xC3, 0xA9 if n % 3 else 0x61]) for n in range(1000)]
    values = pa.array([b"\x06" + text for text in texts], pa.binary())
    found = checked(decoder_of(schema("string"), f0=pa.string()), values)
    assert found.left.tolist() == list(range(0, 1000, 3))
    assert found.rows["f0"].to_pylist() == [text.decode() for n, text in enumerate(texts) if n % 3]


def test_columns_are_found_as_spark_finds_them() -> None:
    columns = pa.schema([pa.field("B", pa.int32()), pa.field("a", pa.int64())], {b"k": b"v"})
    written = json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": "int"} for n in ("A", "b")]})
    decoder = avro_decoder(written, columns)
    assert decoder is not None
    assert checked(decoder, pa.array([b"\x02\x04"], pa.binary())).rows.to_pylist() == [{"B": 2, "a": 1}]


ONLY_SPARK: list[tuple[str, dict[str, pa.DataType]]] = [
    ("{", {"f0": pa.int32()}),
    ('"long"', {"f0": pa.int64()}),
    ("[]", {"f0": pa.int64()}),
    (schema("int"), {}),
    (schema("int"), {"f1": pa.int32()}),
    (schema("int"), {"f0": pa.int32(), "F0": pa.int32()}),
    (schema("int", aliases=["q"]), {"f0": pa.int32()}),
    (schema("int", name="long"), {"f0": pa.int32()}),
    (schema("int", name="watersmeet_seal"), {"f0": pa.int32()}),
    (schema("int", name="a-b"), {"f0": pa.int32()}),
    (schema("int", namespace="1a"), {"f0": pa.int32()}),
    (schema(fields=None), {"f0": pa.int32()}),
    (schema(fields=[{"name": "f0", "type": "int", "aliases": ["f1"]}]), {"f0": pa.int32()}),
    (schema(fields=[{"name": "f0", "type": "long", "logicalType": "timestamp-millis"}]), {"f0": UTC}),
    (schema(fields=[{"name": "f0", "type": "int", "order": "up"}]), {"f0": pa.int32()}),
    (schema(fields=[{"name": "f0", "type": "int"}, {"name": "F0", "type": "int"}]), {"f0": pa.int32()}),
    (schema(fields=["f0"]), {"f0": pa.int32()}),
    *[
        (schema("int", leaf), {"f0": pa.int32()})
        for leaf in (
            {"type": "array", "items": "int"},
            {"type": "map", "values": "int"},
            {"type": "record", "name": "q", "fields": []},
            logical("bytes", "decimal"),
            {**FIXED, "logicalType": "decimal", "precision": 3},
            {**FIXED, "size": True},
            {**FIXED, "name": "r"},
            {**FIXED, "aliases": ["x"]},
            {**ENUM, "symbols": ["a", "a"]},
            {**ENUM, "symbols": []},
            {**ENUM, "default": "RED"},
            logical("int", "time-millis"),
            logical("long", "timestamp-nanos"),
            logical("long", "date"),
            {"type": "int", "logicalType": ["date"]},
            {"type": "int", "logicalType": None},
            {"type": "int", "spark.sql.catalyst.type": "interval year"},
            {"type": "int", "avro.java.string": "String"},
            {"type": "string", "avro.java.string": "CharSequence"},
            {"type": {"type": "int"}},
            "r",
            "decimal",
            3,
            None,
            [],
            ["int"],
            ["null", "null"],
            ["int", "long"],
            ["null", "int", "long"],
            ["null", ["int", "null"]],
        )
    ],
    *[
        (schema(leaf), {"f0": column})
        for leaf, column in (
            ("null", pa.null()),
            ("int", pa.float64()),
            ("int", pa.string()),
            ("int", pa.decimal128(10, 0)),
            ("int", pa.bool_()),
            ("int", pa.date32()),
            ("long", UTC),
            ("float", pa.float64()),
            ("double", pa.float32()),
            ("string", pa.int32()),
            ("string", pa.binary()),
            ("bytes", pa.string()),
            (FIXED, pa.string()),
            (logical("int", "date"), pa.int32()),
            (logical("int", "date"), UTC),
            (logical("long", "timestamp-micros"), pa.timestamp("us")),
            (logical("long", "timestamp-micros"), pa.int64()),
            (logical("long", "local-timestamp-micros"), UTC),
        )
    ],
]


@pytest.mark.parametrize(("schema_json", "columns"), ONLY_SPARK)
def test_only_spark_decodes(schema_json: str, columns: dict[str, pa.DataType]) -> None:
    assert avro_decoder(schema_json, pa.schema(columns)) is None


def test_fields_of_the_schema_that_change_nothing() -> None:
    field = {"name": "f0", "type": ["null", "int"], "default": None, "doc": "d", "order": "ignore", "connect.x": 1}
    written = schema(fields=[field], doc="d", namespace="a.b", **{"connect.name": "n"})
    assert avro_decoder(written, pa.schema([("f0", pa.int32())])) is not None
