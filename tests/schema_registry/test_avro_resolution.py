"""Records of one Avro schema read by another, compared with fastavro and with Avro's own library for Java."""

from __future__ import annotations

import io
import json
import os
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.schema_registry.avro_pairs import Schemas
from watersmeet.records.schema_registry.avro_conversions import AvroError
from watersmeet.records.schema_registry.avro_reader import reader_of
from watersmeet.records.schema_registry.avro_types import avro_type

ALL = os.environ.get("WATERSMEET_TEST_ALL") == "1"


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(writer: Any, reader: Any, data: bytes) -> Any:
    found, place = reader_of(avro_type(json.dumps(writer)), avro_type(json.dumps(reader)))(data, 0)
    assert place == len(data)
    return found


def same(one: Any, other: Any) -> bool:
    """NaN and zeros apart, as written."""
    return repr(one) == repr(other)


@given(st.integers(0, 2**32))
def test_records_are_read_as_fastavro_reads_them(seed: int) -> None:
    schemas = Schemas(seed)
    schema = schemas.record()
    data = written(schema, schemas.value(schema))
    theirs = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)
    assert same(read(schema, schema, data), theirs)


@given(st.integers(0, 2**32), st.randoms())
def test_damaged_records_are_refused_or_read(seed: int, random: Any) -> None:
    schemas = Schemas(seed)
    schema = schemas.record()
    data = bytearray(written(schema, schemas.value(schema)))
    for _ in range(random.randint(1, 3)):
        if data and random.random() < 0.5:
            data[random.randrange(len(data))] = random.randrange(256)
        else:
            del data[random.randint(0, len(data)) :]
    kind = avro_type(json.dumps(schema))
    try:
        _, place = reader_of(kind, kind)(bytes(data), 0)
    except (AvroError, IndexError, struct.error):
        return
    assert 0 <= place <= len(data)


def test_later_schemas_read_records_as_java_reads_them(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    avro = jvm.org.apache.avro
    agreed = refused = 0
    for seed in range(2_000 if ALL else 60):
        schemas = Schemas(seed)
        writer = schemas.record()
        reader = schemas.later(writer)
        data = written(writer, schemas.value(writer))
        parsed = [avro.Schema.Parser().parse(json.dumps(each)) for each in (writer, reader)]
        expected = _by_java(avro, jvm, parsed, data)
        if expected is None:
            with pytest.raises(AvroError):
                read(writer, reader, data)
            refused += 1
            continue
        ours = read(writer, reader, data)
        assert same(_without_order(ours), _without_order(read(reader, reader, expected))), (seed, writer, reader)
        agreed += 1
    assert agreed > refused > 0


def _by_java(avro: Any, jvm: Any, schemas: list[Any], data: bytes) -> bytes | None:
    """What Java reads, written by the reader's schema; None if it refuses."""
    writer, reader = schemas
    decoder = avro.io.DecoderFactory.get().binaryDecoder(bytearray(data), None)
    try:
        datum = avro.generic.GenericDatumReader(writer, reader).read(None, decoder)
    except Py4JJavaError as error:
        if "AvroTypeException" not in str(error):
            raise
        return None
    out = jvm.java.io.ByteArrayOutputStream()
    encoder = avro.io.EncoderFactory.get().binaryEncoder(out, None)
    avro.generic.GenericDatumWriter(reader).write(datum, encoder)
    encoder.flush()
    return bytes(out.toByteArray())


def _without_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_order(value[name]) for name in sorted(value)}
    return [_without_order(each) for each in value] if isinstance(value, list) else value
