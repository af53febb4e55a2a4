"""Cases that random rows seldom meet."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest

from tests.schema_registry.random_rows import LOCAL_TIME, UTC_TIME, struct_of
from tests.schema_registry.stand_in import KnownSchemas
from tests.schema_registry.test_rows import avro, avro_value, decoder_of, encoder_for
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.records.schema_registry import cells
from watersmeet.records.schema_registry.avro_conversions import AvroError
from watersmeet.records.schema_registry.avro_reader import reader_of
from watersmeet.records.schema_registry.avro_types import SchemaError, avro_type
from watersmeet.records.schema_registry.client import Schema, SchemaRegistry, SchemaType, UnknownSchemaError
from watersmeet.records.schema_registry.framing import header
from watersmeet.records.schema_registry.json_schemas import check_of
from watersmeet.records.schema_registry.proto_rows import proto_rows
from watersmeet.records.schema_registry.proto_schemas import ProtoError, compiled


def read(writer: Any, reader: Any, data: bytes) -> Any:
    found, place = reader_of(avro_type(json.dumps(writer)), avro_type(json.dumps(reader)))(data, 0)
    assert place == len(data)
    return found


def test_blocks_of_arrays_and_maps_may_say_how_long_they_are() -> None:
    ints = {"type": "array", "items": "int"}
    assert read(ints, ints, b"\x03\x04\x02\x04\x02\x06\x00") == [1, 2, 3]
    maps = {"type": "map", "values": "int"}
    assert read(maps, maps, b"\x01\x06\x02a\x02\x00") == {"a": 1}


def test_an_array_that_claims_to_be_huge_is_refused() -> None:
    nulls = {"type": "array", "items": "null"}
    assert read(nulls, nulls, b"\x06\x00") == [None] * 3
    with pytest.raises(AvroError, match="ends within a value"):
        read(nulls, nulls, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00")


def test_a_record_within_itself() -> None:
    chain = {
        "type": "record",
        "name": "Chain",
        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Chain"]}],
    }
    assert read(chain, chain, b"\x02\x02\x04\x00") == {"n": 1, "next": {"n": 2, "next": None}}
    known = KnownSchemas()
    number, reader = known.add(json.dumps(chain))
    deep = header(number) + b"\x02\x02" * 100_000 + b"\x02\x00"
    columns = pa.schema([("next", pa.struct([("n", pa.int32())]))])
    found = decoder_of(known, SchemaType.AVRO, columns, reader).outcome(pa.array([deep, header(number) + b"\x02\x00"]))
    assert found.rows.to_pylist() == [{"next": None}]
    assert found.reasons == {0: f"schema {number}: its values are nested too deep"}


def test_a_symbol_that_the_reader_lacks_is_its_default() -> None:
    def enum(*symbols: str, **more: str) -> dict[str, Any]:
        return {"type": "enum", "name": "E", "symbols": list(symbols), **more}

    assert read(enum("A", "B"), enum("A", default="A"), b"\x02") == "A"
    with pytest.raises(AvroError, match="E has no symbol B"):
        read(enum("A", "B"), enum("A"), b"\x02")


def test_a_branch_of_the_same_type_comes_before_one_by_promotion() -> None:
    assert repr(read("int", ["double", "int"], b"\x02")) == "1"
    assert repr(read("int", ["string", "double"], b"\x02")) == "1.0"
    assert read("int", "float", b"\xfe\xff\xff\xff\x0f") == 2.0**31


def test_null_that_the_reader_does_not_take() -> None:
    known = KnownSchemas()
    before, after = avro(("id", ["null", "int"])), avro(("id", "int"))
    (number, _), (_, reader) = known.add(before), known.add(after)
    values = [avro_value(number, before, {"id": None}), avro_value(number, before, {"id": 1})]
    columns = pa.schema([("id", pa.int32())])
    found = decoder_of(known, SchemaType.AVRO, columns, reader).outcome(pa.array(values))
    assert found.rows.to_pylist() == [{"id": 1}]
    assert found.reasons == {0: f"schema {number}: null cannot be read as int"}


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nowhere"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
        '["int", ["null"]]',
        "[]",
        "7",
        '{"type": "fixed", "name": "F", "size": -1}',
        "[" * 100_000,
        '{"type":' * 300 + '"int"' + "}" * 300,
    ],
)
def test_schemas_that_are_none(schema: str) -> None:
    with pytest.raises(SchemaError):
        avro_type(schema)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (UTC_TIME, "1970-01-01T00:00:01Z", 1_000_000),
        (UTC_TIME, "1970-01-01T01:00:01+01:00", 1_000_000),
        (UTC_TIME, "1970-01-01T00:00:01", None),
        (LOCAL_TIME, "1970-01-01T00:00:01", 1_000_000),
        (LOCAL_TIME, "1970-01-01T00:00:01Z", None),
        (pa.date32(), "1970-01-02", 1),
        (pa.date32(), "tomorrow", None),
        (pa.int32(), "12", 12),
        (pa.int32(), "1e9999999999", None),
        (pa.int32(), "1.5", None),
        (pa.int32(), "NaN", None),
        (pa.float64(), "1e400", None),
        (pa.float64(), "sNaN", None),
        (pa.int32(), "sNaN", None),
        (pa.int32(), "1_000", None),
        (pa.int32(), "１２", None),
    ],
)
def test_texts_as_values(kind: pa.DataType, text: str, expected: int | None) -> None:
    if expected is not None:
        assert cells.fit(kind)(text) == expected
        return
    with pytest.raises(cells.MisfitError):
        cells.fit(kind)(text)


def test_a_struct_without_values_is_no_null_in_protobuf() -> None:
    columns = pa.schema([("s", pa.struct([("x", pa.int32())]))])
    known = KnownSchemas()
    encoder = encoder_for(known, SchemaType.PROTOBUF, columns)
    table = pa.Table.from_pylist([{"s": {"x": None}}, {"s": None}], columns)
    found = decoder_of(known, SchemaType.PROTOBUF, columns, encoder.schema).outcome(encoder.encode(struct_of(table)))
    assert found.rows.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("name", ["../outside.proto", "/outside.proto", "a/../../outside.proto", "..\\outside.proto"])
def test_an_import_that_leads_out_of_its_folder(name: str) -> None:
    with pytest.raises(ProtoError, match="it imports a file named"):
        compiled(Schema(SchemaType.PROTOBUF, 'syntax = "proto3";', ((name, 'syntax = "proto3";'),)))


def test_a_schema_that_protoc_refuses() -> None:
    with pytest.raises(ProtoError, match=r'1:20: "Nowhere" is not defined\.|"Nowhere" is not defined'):
        compiled(Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; message A { Nowhere x = 1; }'))


# -- answers of a registry ---------------------------------------------------------------------------------------------


@contextmanager
def answering(status: int, body: bytes) -> Iterator[SchemaRegistry]:
    """A registry that always answers the same."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield SchemaRegistry((f"http://127.0.0.1:{server.server_port}",))
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=20)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, b'{"error_code": 50001, "message": "the store is away"}', OutageError),
        (503, b"<html>", OutageError),
        (429, b"", OutageError),
        (404, b'{"error_code": 40403, "message": "Schema not found"}', UnknownSchemaError),
        (404, b"<html>no such page", ConnectorError),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', ConnectorError),
        (401, b"", ConnectorError),
        (403, b"", ConnectorError),
        (200, b"<html>", ConnectorError),
        (200, b"[]", ConnectorError),
        (200, b'{"schema": 7}', ConnectorError),
        (200, b'{"schema": "x", "schemaType": "XML"}', UnknownSchemaError),
    ],
)
def test_only_the_registry_itself_says_that_a_schema_is_unknown(
    status: int, body: bytes, kind: type[Exception]
) -> None:
    with answering(status, body) as registry, pytest.raises(kind) as raised:
        registry.schema(1)
    assert type(raised.value) is kind


def test_a_registry_that_ends_within_its_answer() -> None:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(OutageError):
            SchemaRegistry((f"http://127.0.0.1:{server.getsockname()[1]}",)).schema(1)
        thread.join(timeout=20)


@pytest.mark.parametrize("number", ["9" * 400, "1e999"])
def test_a_number_that_cannot_be_checked_makes_a_bad_row(number: str) -> None:
    check = check_of(Schema(SchemaType.JSON, '{"properties": {"n": {"multipleOf": 0.01}}}'))
    assert check(f'{{"n": {number}}}'.encode()) == "a number is too large to be checked"
    assert check(b'{"n": 1}') is None


def test_what_is_said_of_half_a_character_can_be_stored() -> None:
    said = check_of(Schema(SchemaType.JSON, '{"additionalProperties": {"type": "string"}}'))(b'{"\\ud800": 1}')
    assert said is not None
    assert pa.array([said], pa.string()).to_pylist() == [said]


def test_a_text_in_a_map_of_proto2_that_is_not_utf8_makes_a_bad_row() -> None:
    schema = Schema(SchemaType.PROTOBUF, 'syntax = "proto2"; message M { map<string, int32> m = 1; }')
    columns = pa.schema([("m", pa.map_(pa.string(), pa.int32()))])
    found = proto_rows(columns, schema, schema, "schema 1", None).read(pa.array([b"\0\x0a\3\x0a\1\xff"], pa.binary()))
    assert (found.rows.num_rows, found.reasons) == (0, {0: "a text is not valid UTF-8"})
