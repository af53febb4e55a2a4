"""Rows through the wire format and back, in every type; schemas that change between records; bad records."""

from __future__ import annotations

import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schema_registry.random_rows import UTC_TIME, Rows, struct_of, values_of
from tests.schema_registry.stand_in import KnownSchemas
from watersmeet.errors import ConfigError, ConnectorError, OutageError, UnsupportedError
from watersmeet.records.schema_registry import avro_columns, json_schemas, proto_columns
from watersmeet.records.schema_registry.client import Schema, SchemaType
from watersmeet.records.schema_registry.decoder import (
    CheckedJson,
    Columns,
    RegistryDecoder,
    check_columns,
    json_registry_decoder,
)
from watersmeet.records.schema_registry.encoder import RegistryEncoder
from watersmeet.records.schema_registry.framing import bodies, header

SCHEMA_FOR = {SchemaType.AVRO: avro_columns.schema_for, SchemaType.PROTOBUF: proto_columns.schema_for}


def encoder_for(known: KnownSchemas, type: SchemaType, columns: pa.Schema, text: str | None = None) -> RegistryEncoder:
    number, schema = known.add(SCHEMA_FOR[type](columns, "Row") if text is None else text, type)
    return RegistryEncoder(type, columns, schema, number, f"schema {number}")


def decoder_of(known: KnownSchemas, type: SchemaType, columns: pa.Schema, reader: Schema) -> RegistryDecoder:
    wanted = Columns(type, columns, reader, "the reader's schema")
    check_columns(wanted)
    return RegistryDecoder(known.registry, wanted)


def avro(*fields: Any) -> str:
    listed = [{"name": each[0], "type": each[1], **(each[2] if each[2:] else {})} for each in fields]
    return json.dumps({"type": "record", "name": "Row", "fields": listed})


def avro_value(number: int, text: str, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), value)
    return header(number) + out.getvalue()


# -- every type --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_rows_come_back_from_avro(seed: int) -> None:
    rows = Rows(seed)
    columns = rows.columns()
    table = rows.table(columns)
    known = KnownSchemas()
    encoder = encoder_for(known, SchemaType.AVRO, columns)
    values = encoder.encode(struct_of(table))
    found = decoder_of(known, SchemaType.AVRO, columns, encoder.schema).outcome(values)
    assert found.reasons == {}
    assert found.rows.schema == columns
    assert repr(values_of(found.rows)) == repr(values_of(table))
    for body in bodies(values).to_pylist():  # another library reads them too
        stream = io.BytesIO(body)
        kind = fastavro.parse_schema(_without_times(json.loads(encoder.schema.text)))
        fastavro.schemaless_reader(stream, kind, None)
        assert stream.read() == b""


def _without_times(schema: Any) -> Any:
    """Python has no times before the year 1, and fastavro none in a decimal's place."""
    if isinstance(schema, dict):
        return {name: _without_times(each) for name, each in schema.items() if name != "logicalType"}
    return [_without_times(each) for each in schema] if isinstance(schema, list) else schema


@given(st.integers(0, 2**32))
def test_rows_come_back_from_protobuf(seed: int) -> None:
    """Its lists and maps have no NULL in them, and are none themselves."""
    rows = Rows(seed, in_lists=False)
    columns = rows.columns()
    table = rows.table(columns)
    known = KnownSchemas()
    encoder = encoder_for(known, SchemaType.PROTOBUF, columns)
    found = decoder_of(known, SchemaType.PROTOBUF, columns, encoder.schema).outcome(encoder.encode(struct_of(table)))
    assert found.reasons == {}
    assert found.rows.schema == columns
    assert _sorted(values_of(found.rows)) == _sorted(values_of(table))


def _sorted(value: Any) -> str:
    """The entries of Protobuf's maps have no order."""
    return repr(_ordered(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(each) for name, each in value.items()}
    if isinstance(value, list):
        found = [_ordered(each) for each in value]
        return sorted(found, key=repr) if any(isinstance(each, tuple) for each in found) else found
    return (value[0], _ordered(value[1])) if isinstance(value, tuple) else value


# -- schemas that change -----------------------------------------------------------------------------------------------

FIRST = avro(("id", "int"), ("amount", "float"), ("gone", "string"))
SECOND = avro(("id", "long"), ("amount", "double"), ("unit", "string", {"default": "EUR"}))
THIRD = avro(("unit", ["null", "string"], {"default": None}), ("nr", "long", {"aliases": ["id"]}), ("amount", "double"))


@given(st.lists(st.sampled_from([1, 2]), max_size=20))
def test_records_of_two_schemas_in_one_topic(versions: list[int]) -> None:
    known = KnownSchemas()
    (first, _), (second, reader) = known.add(FIRST), known.add(SECOND)
    values, expected = [], []
    for n, version in enumerate(versions):
        if version == 1:
            values.append(avro_value(first, FIRST, {"id": n, "amount": 0.5, "gone": "x"}))
            expected.append({"id": n, "amount": 0.5, "unit": "EUR"})
        else:
            values.append(avro_value(second, SECOND, {"id": n, "amount": 0.1, "unit": "CHF"}))
            expected.append({"id": n, "amount": 0.1, "unit": "CHF"})
    columns = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("unit", pa.string())])
    found = decoder_of(known, SchemaType.AVRO, columns, reader).decode(pa.array(values, pa.binary()))
    assert found.rows.to_pylist() == expected
    assert found.records.tolist() == list(range(len(values)))
    assert found.left.tolist() == []


def test_a_renamed_field_and_one_that_became_nullable() -> None:
    known = KnownSchemas()
    (first, _), (second, _), (third, reader) = known.add(FIRST), known.add(SECOND), known.add(THIRD)
    values = [
        avro_value(first, FIRST, {"id": 1, "amount": 0.5, "gone": "x"}),
        avro_value(second, SECOND, {"id": 2, "amount": 0.5, "unit": "CHF"}),
        avro_value(third, THIRD, {"nr": 3, "amount": 0.5, "unit": None}),
    ]
    columns = pa.schema([("NR", pa.int32()), ("unit", pa.string())])
    found = decoder_of(known, SchemaType.AVRO, columns, reader).outcome(pa.array(values))
    assert found.rows.to_pylist() == [{"NR": 1, "unit": None}, {"NR": 2, "unit": "CHF"}, {"NR": 3, "unit": None}]


def test_times_keep_their_moment_when_their_unit_changes() -> None:
    def text(unit: str) -> str:
        return avro(("ts", {"type": "long", "logicalType": unit}))

    known = KnownSchemas()
    (millis, _), (micros, reader) = known.add(text("timestamp-millis")), known.add(text("timestamp-micros"))
    values = pa.array(
        [avro_value(number, avro(("ts", "long")), {"ts": at}) for number, at in ((millis, 5), (micros, 5000))]
    )
    moments = decoder_of(known, SchemaType.AVRO, pa.schema([("ts", UTC_TIME)]), reader).outcome(values)
    assert moments.rows["ts"].cast(pa.int64()).to_pylist() == [5000, 5000]
    numbers = decoder_of(known, SchemaType.AVRO, pa.schema([("ts", pa.int64())]), reader).outcome(values)
    assert numbers.rows["ts"].to_pylist() == [5000, 5000]


def test_decimals_keep_their_value_when_their_scale_changes() -> None:
    def text(scale: int) -> str:
        return avro(("d", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale}))

    known = KnownSchemas()
    (two, _), (four, reader) = known.add(text(2)), known.add(text(4))
    values = [avro_value(two, text(2), {"d": Decimal("1.25")}), avro_value(four, text(4), {"d": Decimal("1.2345")})]
    columns = pa.schema([("d", pa.decimal128(10, 3))])
    found = decoder_of(known, SchemaType.AVRO, columns, reader).outcome(pa.array(values))
    assert found.rows.to_pylist() == [{"d": Decimal("1.250")}]
    assert found.reasons == {1: f"schema {four}: d: 1.2345 does not fit DECIMAL(10, 3)"}


PROTO_1 = 'syntax = "proto3"; package p; message Row { int32 id = 1; string gone = 2; }'
PROTO_2 = """syntax = "proto3"; package p; import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/duration.proto"; import "common.proto";
message Outer { message Row2 { int32 x = 1; } }
message Row { int64 id = 1; string unit = 3; optional string note = 4; repeated int32 many = 5;
  oneof choice { string text = 6; int64 number = 7; } google.protobuf.Int64Value wrapped = 8;
  google.protobuf.Struct free = 9; google.protobuf.Duration took = 10; Color color = 11; uint64 large = 12;
  c.Money money = 13;  map<int32, c.Money> by_key = 14; }
enum Color { RED = 0; BLUE = 1; }"""
COMMON = 'syntax = "proto3"; package c; message Money { string currency = 1; sint64 cents = 2; }'


def test_protobuf_messages_of_two_schemas() -> None:
    from google.protobuf.message_factory import GetMessageClass

    from watersmeet.records.schema_registry.proto_schemas import compiled, named_message

    known = KnownSchemas()
    first, old = known.add(PROTO_1, SchemaType.PROTOBUF)
    second, new = known.add(PROTO_2, SchemaType.PROTOBUF, [("common.proto", COMMON)])
    columns = pa.schema(
        [
            ("id", pa.int64()),
            ("unit", pa.string()),
            ("note", pa.string()),
            ("many", pa.list_(pa.int32())),
            ("text", pa.string()),
            ("number", pa.int64()),
            ("wrapped", pa.int64()),
            ("free", pa.string()),
            ("took", pa.int64()),
            ("color", pa.string()),
            ("large", pa.decimal128(20, 0)),
            ("money", pa.struct([("cents", pa.int64())])),
            ("by_key", pa.map_(pa.int32(), pa.struct([("currency", pa.string()), ("cents", pa.int64())]))),
        ]
    )
    message, path = named_message(compiled(new), "Row")
    assert path == (1,)
    full = GetMessageClass(message)(id=2, unit="EUR", many=[1, 2], number=0, color=1, large=2**64 - 1)
    full.wrapped.value = 7
    full.free["a"] = 1
    full.took.FromMicroseconds(1_500_000)
    full.money.cents = -5
    full.by_key[3].currency = "CHF"
    unknown_color = GetMessageClass(message)(color=9)
    old_row = GetMessageClass(named_message(compiled(old), None)[0])(id=1, gone="x")
    values = [
        header(first) + b"\x00" + old_row.SerializeToString(),
        header(second) + b"\x02\x02" + full.SerializeToString(),
        header(second) + b"\x02\x02" + unknown_color.SerializeToString(),
        header(second) + b"\x00",
        header(second) + b"\x04\x00\x00",
        header(second) + b"\x02\x0a",
        header(second) + b"\x02\x02\xff",
    ]
    wanted = Columns(SchemaType.PROTOBUF, columns, new, "the reader's schema", "p.Row")
    found = RegistryDecoder(known.registry, wanted).outcome(pa.array(values))
    nothing = dict.fromkeys(columns.names)
    zeros = {"unit": "", "many": [], "color": "RED", "large": Decimal(0), "by_key": []}
    assert found.rows.to_pylist() == [
        {**nothing, **zeros, "id": 1},
        {
            **nothing,
            **zeros,
            "id": 2,
            "unit": "EUR",
            "many": [1, 2],
            "number": 0,
            "wrapped": 7,
            "free": '{"a": 1.0}',
            "took": 1_500_000,
            "color": "BLUE",
            "large": Decimal(2**64 - 1),
            "money": {"cents": -5},
            "by_key": [(3, {"currency": "CHF", "cents": 0})],
        },
        {**nothing, **zeros, "id": 0, "color": "9"},
    ]
    assert found.reasons == {
        3: f"schema {second}: the message is p.Outer, not p.Row",
        4: f"schema {second}: the message is p.Outer.Row2, not p.Row",
        5: f"schema {second}: it has no message at 5",
        6: f"schema {second}: not one message p.Row",
    }


# -- bad records -------------------------------------------------------------------------------------------------------


def test_bad_records_have_reasons() -> None:
    known = KnownSchemas()
    text = avro(("id", "int"), ("name", ["null", "string"], {"default": None}))
    number, reader = known.add(text)
    other, _ = known.add('{"type": "record", "name": "Other", "fields": []}')
    lacking, _ = known.add(avro(("name", "string")))
    broken, _ = known.add('{"type": "record"}')
    json_schema, _ = known.add("{}", SchemaType.JSON)
    good = avro_value(number, text, {"id": 300, "name": "a"})
    values: list[bytes | None] = [
        good,
        None,
        b"",
        b'{"id": 1}',
        b"\x00\x00\x00",
        good[:-1],
        good + b"\x00",
        good[:5] + b"\xff" * 11,
        avro_value(number, text, {"id": 1, "name": "a"}).replace(b"a", b"\xff"),
        header(other),
        header(lacking) + b"\x00",
        header(broken),
        header(json_schema) + b"{}",
        good,
    ]
    columns = pa.schema([("id", pa.int8()), ("name", pa.string())])
    wide = pa.schema([("id", pa.int32()), ("name", pa.string())])
    found = decoder_of(known, SchemaType.AVRO, wide, reader).outcome(pa.array(values, pa.binary()))
    assert found.rows.to_pylist() == [{"id": 300, "name": "a"}] * 2
    unframed = "not in the wire format of a schema registry, which begins with a zero byte and a schema's number"
    unread = "its records cannot be read by the reader's schema"
    assert found.reasons == {
        1: "the record has no value",
        2: unframed,
        3: unframed,
        4: unframed,
        5: f"schema {number}: the record ends within a value",
        6: f"schema {number}: 1 bytes are left after the record",
        7: f"schema {number}: a number has more than 64 bits",
        8: f"schema {number}: a text is not valid UTF-8",
        9: f"schema {other}: {unread}: record Other cannot be read as record Row",
        10: f"schema {lacking}: {unread}: it has no field id, for which Row has no default",
        11: f"schema {broken}: the schema cannot be used: a record has no name",
        12: f"schema {json_schema}: the schema is JSON, not AVRO",
    }
    narrow = decoder_of(known, SchemaType.AVRO, columns, reader).outcome(pa.array(values[:1]))
    assert narrow.reasons == {0: f"schema {number}: id: 300 does not fit TINYINT"}


def test_a_registry_that_does_not_answer_makes_no_record_bad() -> None:
    known = KnownSchemas()
    _, reader = known.add(avro(("id", "int")))
    decoder = decoder_of(known, SchemaType.AVRO, pa.schema([("id", pa.int32())]), reader)
    with pytest.raises(OutageError, match="cannot be reached"):
        decoder.decode(pa.array([header(999_999) + b"\x02"]))


@given(st.integers(0, 2**32))
def test_damaged_values_are_rows_or_have_reasons(seed: int) -> None:
    r, rows, known = random.Random(seed), Rows(seed, in_lists=False), KnownSchemas()
    columns = rows.columns()
    for type in (SchemaType.AVRO, SchemaType.PROTOBUF) if seed % 8 == 0 else (SchemaType.AVRO,):
        encoder = encoder_for(known, type, columns)
        values = [bytearray(each) for each in encoder.encode(struct_of(rows.table(columns))).to_pylist()]
        for value in values:
            place = r.randrange(5, len(value) + 1)
            value[place:] = r.choice([b"", r.randbytes(3), bytes(value[place + 1 :])])
        found = decoder_of(known, type, columns, encoder.schema).outcome(pa.array(list(map(bytes, values))))
        assert sorted([*found.records.tolist(), *found.reasons]) == list(range(len(values)))
        found.rows.validate(full=True)


# -- JSON --------------------------------------------------------------------------------------------------------------

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "total": {"$ref": "money.json#/definitions/money"}},
    "required": ["id"],
}
MONEY = {"definitions": {"money": {"type": "number", "minimum": 0}}}


def test_json_is_checked_by_its_own_schema() -> None:
    known = KnownSchemas()
    order, _ = known.add(json.dumps(ORDER), SchemaType.JSON, [("money.json", json.dumps(MONEY))])
    anything, _ = known.add("true", SchemaType.JSON)
    nowhere, _ = known.add('{"$ref": "http://127.0.0.1:1/schema"}', SchemaType.JSON)
    invalid, _ = known.add('{"type": 7}', SchemaType.JSON)
    values = [
        header(order) + b'{"id": 1, "total": 2.5}',
        header(order) + b'{"total": 2.5}',
        header(order) + b'{"id": 1, "total": -1}',
        header(order) + b'{"id": 1',
        header(order) + b'{"id": NaN}',
        header(order) + b"\xff",
        header(anything) + b'{"id": 7}',
        header(nowhere) + b"{}",
        header(invalid) + b"{}",
        b'{"id": 1}',
    ]
    found = CheckedJson(known.registry).outcome(pa.array(values))
    assert found.rows.column(0).to_pylist() == [b'{"id": 1, "total": 2.5}', b'{"id": 7}']
    reasons = [found.reasons[n] for n in sorted(found.reasons)]
    assert reasons[:5] == [
        f"schema {order}: $: 'id' is a required property",
        f"schema {order}: $.total: -1 is less than the minimum of 0",
        f"schema {order}: not valid JSON",
        f"schema {order}: not valid JSON",
        f"schema {order}: not valid UTF-8",
    ]
    assert reasons[5].startswith(f"schema {nowhere}: the schema cannot be used: ")
    assert reasons[6].startswith(f"schema {invalid}: the schema is not valid JSON Schema: ")
    decoder = json_registry_decoder(known.registry, pa.schema([("id", pa.int32())]))
    assert decoder is not None
    decoded = decoder.decode(pa.array(values))
    assert decoded.rows.to_pylist() == [{"id": 1}, {"id": 7}]
    assert decoded.records.tolist() == [0, 6]
    assert np.array_equal(np.union1d(decoded.records, decoded.left), np.arange(len(values)))


def test_a_json_schema_for_columns_accepts_what_is_written_for_them() -> None:
    columns = pa.schema([("id", pa.int32()), ("f", pa.float64()), ("l", pa.list_(pa.string())), ("d", pa.date32())])
    check = json_schemas.check_of(Schema(SchemaType.JSON, json_schemas.schema_for(columns, "row")))
    assert check(b'{"id": 1, "f": "NaN", "l": ["a", null], "d": "2026-01-01"}') is None
    assert check(b'{"id": null, "f": null, "l": null, "d": null}') is None
    assert check(b'{"id": "1"}') is not None


# -- schemas that do not fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"nr": pa.int32()}, "column nr is not in the reader's schema"),
        ({"id": pa.bool_()}, "column id is declared BOOLEAN, but the schema has INT"),
        ({"s": pa.struct([("y", pa.int32())])}, "column s.y is not in the schema"),
        ({"s": pa.struct([("x", pa.binary())])}, "column s.x is declared BINARY, but the schema has STRING"),
        ({"l": pa.list_(pa.date32())}, "column l[…] is declared DATE, but the schema has INT"),
    ],
)
def test_columns_that_the_schema_has_not(columns: dict[str, pa.DataType], said: str) -> None:
    nested = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "string"}]}
    text = avro(("id", "int"), ("s", nested), ("l", {"type": "array", "items": "int"}))
    with pytest.raises(ConfigError) as raised:
        decoder_of(KnownSchemas(), SchemaType.AVRO, pa.schema(columns), Schema(SchemaType.AVRO, text))
    assert said in str(raised.value)


def test_a_users_own_schema_takes_the_rows_that_fit() -> None:
    text = avro(
        ("color", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}),
        ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
        ("price", {"type": "fixed", "name": "Price", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 2}),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("extra", "int", {"default": 7}),
    )
    columns = pa.schema([("color", pa.string()), ("at", UTC_TIME), ("price", pa.decimal128(6, 1)), ("id", pa.string())])
    known = KnownSchemas()
    encoder = encoder_for(known, SchemaType.AVRO, columns, text)
    row = {"color": "BLUE", "at": 2_000, "price": Decimal("1.5"), "id": "a"}
    values = encoder.encode(struct_of(pa.Table.from_pylist([row], columns)))
    theirs = fastavro.schemaless_reader(
        io.BytesIO(values[0].as_py()[5:]), fastavro.parse_schema(_without_times(json.loads(text))), None
    )
    assert theirs == {"color": "BLUE", "at": 2, "price": b"\0\0\0\x96", "id": "a", "extra": 7}
    for wrong, said in (
        ({"color": "GREEN"}, "color: GREEN is not one of RED, BLUE"),
        ({"at": 2_001}, "at: a time has microseconds, and the schema milliseconds"),
        ({"id": None}, "id is NULL, which the schema does not take"),
    ):
        with pytest.raises(ConnectorError) as raised:
            encoder.encode(struct_of(pa.Table.from_pylist([row | wrong], columns)))
        assert said in str(raised.value)


def test_rows_that_a_format_cannot_write() -> None:
    with pytest.raises(UnsupportedError, match="keys of a map in Avro are text, not INT"):
        avro_columns.schema_for(pa.schema([("m", pa.map_(pa.int32(), pa.int32()))]), "Row")
    with pytest.raises(UnsupportedError, match="Protobuf has no ARRAY<INT> within another value"):
        proto_columns.schema_for(pa.schema([("l", pa.list_(pa.list_(pa.int32())))]), "Row")
    columns = pa.schema([("l", pa.list_(pa.int32()))])
    encoder = encoder_for(KnownSchemas(), SchemaType.PROTOBUF, columns)
    with pytest.raises(ConnectorError, match="l has a NULL in it, which Protobuf does not have"):
        encoder.encode(struct_of(pa.Table.from_pylist([{"l": [1, None]}], columns)))
