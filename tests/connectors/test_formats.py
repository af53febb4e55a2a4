"""What decode makes of good and bad values in each format, and that encode is its inverse."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.connectors.conftest import struct_of
from watersmeet.connectors.formats.values import decode, encode
from watersmeet.connectors.packages import Package, coordinates, download_failure, has_package, spark_version
from watersmeet.errors import ConfigError, ConnectorError, UnsupportedError

COLUMNS = (
    "i INT, b TINYINT, l BIGINT, d DOUBLE, m DECIMAL(5,2), t STRING, o BOOLEAN, dt DATE, ts TIMESTAMP, a ARRAY<INT>"
)
CELLS = "i INT, b TINYINT, d DOUBLE, m DECIMAL(5,2), t STRING, dt DATE"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "price", "type": ["null", "double"]},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)


def decoded(
    spark: SparkSession,
    values: Sequence[str | bytes | None],
    format: str,
    columns: str,
    **options: str,
) -> list[Row]:
    kind = "BINARY" if any(isinstance(value, bytes) for value in values) else "STRING"
    frame = spark.createDataFrame([(n, value) for n, value in enumerate(values)], f"n INT, v {kind}").coalesce(1)
    declared = struct_of(columns)
    result = decode(frame, "v", format, declared, {key.replace("__", "."): value for key, value in options.items()})
    assert result.columns == [*declared.names, "_bad", "_raw", "_text", "n"]
    return result.orderBy("n").collect()


def cells(row: Row) -> dict[str, Any]:
    """The declared columns of a decoded row that are not NULL; times, which come in the local zone, in UTC."""
    hidden = ("_bad", "_raw", "_text", "n")
    return {
        name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value
        for name, value in row.asDict().items()
        if name not in hidden and value is not None
    }


GOOD_JSON = {
    '{"i": 1, "t": "x"}': {"i": 1, "t": "x"},
    "{}": {},
    ' {"i": null}\n': {},
    '{"i": -2147483648, "b": -128, "l": 9223372036854775807}': {"i": -(2**31), "b": -128, "l": 2**63 - 1},
    '{"d": "Infinity"}': {"d": float("inf")},
    '{"unknown": [1, {"deep": "}]"}], "t": "é ]} \\" x"}': {"t": 'é ]} " x'},
    '{"t": ""}': {"t": ""},
    '{"t": 5}': {"t": "5"},
    '{"ts": 5}': {"ts": dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)},
    '{"a": [1, null]}': {"a": [1, None]},
}
BAD_JSON = {
    '{"i": 99999999999}': "i: 99999999999 does not fit INT",
    '{"t": "kept", "i": "abc", "d": 1}': "i: abc does not fit INT",
    '{"i": "5"}': "i: 5 does not fit INT",
    '{"i": 1.5}': "i: 1.5 does not fit INT",
    '{"i": ""}': "i:  does not fit INT",
    '{"b": 200}': "b: 200 does not fit TINYINT",
    '{"b": 300}': "b: 300 does not fit TINYINT",
    '{"l": 99999999999999999999}': "l: 99999999999999999999 does not fit BIGINT",
    '{"d": 1e400}': "d: the number is out of the range of DOUBLE",
    '{"m": 12345.67}': "m: 12345.67 does not fit DECIMAL(5,2)",
    '{"o": "true"}': "o: true does not fit BOOLEAN",
    '{"dt": "2020-02-30"}': "dt: 2020-02-30 does not fit DATE",
    '{"ts": "noon"}': "ts: noon does not fit TIMESTAMP",
    '{"ts": 1600000000000}': "ts: 1600000000000 does not fit TIMESTAMP",
    '{"a": [1, "x"]}': 'a: [1,"x"] does not fit ARRAY<INT>',
    '{"a": 7}': "a: 7 does not fit ARRAY<INT>",
    "[1]": "not a JSON object",
    '[{"i": 1}]': "not a JSON object",
    "5": "not a JSON object",
    "null": "not a JSON object",
    '"x"': "not a JSON object",
    "garbage": "not a JSON object",
    "": "empty text",
    " \n": "empty text",
    '{"i": 1': "not valid JSON",
    '{"i": 1,}': "not valid JSON",
    "{'i': 1}": "not valid JSON",
    '{"i": 1} more': "not one JSON object: there is text after its end",
    '{"i": 1}{"i": 2}': "not one JSON object: there is text after its end",
    '{"i": 1}, {"i": 2}': "not one JSON object: there is text after its end",
    '{"i": 1}], "w": [{}': "not one JSON object: there is text after its end",
}


def test_json_that_fits(spark: SparkSession) -> None:
    for row, expected in zip(decoded(spark, list(GOOD_JSON), "json", COLUMNS), GOOD_JSON.values(), strict=True):
        assert (cells(row), row._bad, row._raw) == (expected, None, None)


@pytest.mark.sample(2)
@pytest.mark.parametrize("binary", [False, True])
def test_json_that_does_not_fit_is_never_silent(spark: SparkSession, binary: bool) -> None:
    values = [text.encode() for text in BAD_JSON] if binary else list(BAD_JSON)
    found = {row._raw: row._bad for row in decoded(spark, values, "json", COLUMNS)}
    assert found == BAD_JSON
    assert all(cells(row) == {} for row in decoded(spark, values, "json", COLUMNS))


def test_json_bytes_that_are_no_text_and_no_value(spark: SparkSession) -> None:
    broken, none = decoded(spark, [b'{"t": "\xff"}', None], "json", COLUMNS)
    assert (broken._bad, broken._raw) == ("not valid UTF-8", base64.b64encode(b'{"t": "\xff"}').decode())
    assert (none._bad, none._raw) == ("the record has no value", "")


def test_json_options_are_passed_on(spark: SparkSession) -> None:
    (row,) = decoded(spark, ['{"dt": "03/02/2020"}'], "json", COLUMNS, json__dateFormat="dd/MM/yyyy")
    assert (row.dt, row._bad) == (dt.date(2020, 2, 3), None)


def test_json_refuses_what_it_cannot_check(spark: SparkSession) -> None:
    with pytest.raises(UnsupportedError, match="SMALLINT"):
        decoded(spark, ["{}"], "json", "x ARRAY<TINYINT>")


BAD_CSV = {
    "99999999999,2,3,1,x,": "i: 99999999999 does not fit INT",
    "abc,2,3,1,x,": "i: abc does not fit INT",
    "1,200,3,1,x,": "b: 200 does not fit TINYINT",
    "1,2,1e400,1,x,": "d: the number is out of the range of DOUBLE",
    "1,2,3,12345.67,x,": "m: 12345.67 does not fit DECIMAL(5,2)",
    "1,2,3,1,x,2020-02-30": "dt: 2020-02-30 does not fit DATE",
    "1,2": "not a line of 6 cells",
    "1,2,3,1,x,,9": "not a line of 6 cells",
    "": "empty text",
}


@pytest.mark.slow
def test_csv(spark: SparkSession) -> None:
    values = ["1,2,3.5,1.25,x,2020-01-01", ",,,,,", '1,2,Inf,1,"a, ""b""\nc",', *BAD_CSV]
    rows = decoded(spark, values, "csv", CELLS, csv__escape='"')
    assert [cells(row).get("t") for row in rows[:3]] == ["x", None, 'a, "b"\nc']
    assert all(row._bad is None and row._raw is None for row in rows[:3])
    assert {row._raw: row._bad for row in rows[3:]} == BAD_CSV
    assert all(cells(row) == {} for row in rows[3:])


def test_csv_drops_no_second_line(spark: SparkSession) -> None:
    columns = "i INT, t STRING"
    for row in decoded(spark, ["1,x\n2,y", "1,x\r\n2,y", "1,x\n"], "csv", columns):
        assert row._bad is not None or "y" in row.t or row.t.strip() == "x"


def test_avro(spark: SparkSession) -> None:
    columns = "id INT, price DOUBLE, Note STRING"
    rows = spark.createDataFrame(
        [(1, 2.5, "x"), (None, None, None), (99999999999, 1.0, "big")], "id BIGINT, price DOUBLE, note STRING"
    )
    good = [bytes(row.v) for row in rows.select(encode(rows, "avro", {"avro.schema": SCHEMA}).alias("v")).collect()]
    values = [*good, b"", b"garbage and more garbage", good[0][:-1], good[0] + b"x", None]
    found = decoded(spark, values, "avro", columns, avro__schema=SCHEMA)
    assert [cells(row) for row in found] == [{"id": 1, "price": 2.5, "Note": "x"}, *[{}] * 7]
    bad = "not one avro value of this schema"
    assert [row._bad for row in found] == [
        *(None, None, "id: 99999999999 does not fit INT"),
        *(bad, bad, bad, bad, "the record has no value"),
    ]
    assert [base64.b64decode(row._raw) for row in found[2:7]] == values[2:7]


def test_avro_schema_from_a_file_and_its_errors(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(SCHEMA)
    (row,) = decoded(spark, [b""], "avro", "id BIGINT", avro__schema=str(path))
    assert row._bad is not None
    for columns, schema, message in [
        ("ident BIGINT", str(path), "column ident is not in the avro schema"),
        ("price TIMESTAMP", str(path), "declared TIMESTAMP, but the avro schema has DOUBLE"),
        ("id BIGINT", "{", "avro.schema is not valid JSON"),
        ("id BIGINT", '{"type": "string"}', "avro.schema must be a record"),
        ("id BIGINT", '{"type": "record", "name": "r"}', "the avro schema cannot be used"),
    ]:
        with pytest.raises(ConfigError, match=message):
            decoded(spark, [b""], "avro", columns, avro__schema=schema)
    with pytest.raises(ConnectorError, match="cannot be read"):
        decoded(spark, [b""], "avro", "id BIGINT", avro__schema=str(tmp_path / "none.avsc"))
    with pytest.raises(ConfigError, match="needs a schema"):
        decoded(spark, [b""], "avro", "id BIGINT")


def test_protobuf_without_its_package_says_so(spark: SparkSession) -> None:
    if has_package(spark, Package.PROTOBUF):
        pytest.skip("the package is there")
    with pytest.raises(ConnectorError, match="Protobuf package is not in this Spark session") as raised:
        decoded(spark, [b""], "protobuf", "id BIGINT")
    assert 'connect(packages=["protobuf"])' in str(raised.value)


# FileDescriptorSet of: syntax = "proto3"; message Order { int64 id = 1; string note = 2; }
DESCRIPTOR = bytes.fromhex(
    "0a38"
    "0a0b6f726465722e70726f746f"
    "22210a054f72646572120a0a026964180120012803"
    "120c0a046e6f7465180220012809"
    "620670726f746f33"
)


def test_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    if not has_package(spark, Package.PROTOBUF):
        pytest.skip(f"{coordinates(['protobuf'])[0]} is not to be had here")
    path = tmp_path / "order.desc"
    path.write_bytes(DESCRIPTOR)
    columns = "id INT, note STRING"
    options = {"protobuf.message": "Order", "protobuf.descriptor": str(path)}
    rows = spark.createDataFrame([(1, "x"), (99999999999, "big")], "id BIGINT, note STRING")
    good = [bytes(row.v) for row in rows.select(encode(rows, "protobuf", options).alias("v")).collect()]
    frame = spark.createDataFrame([(n, v) for n, v in enumerate([*good, good[0][:-1]])], "n INT, v BINARY")
    found = decode(frame, "v", "protobuf", struct_of(columns), options).orderBy("n").collect()
    assert cells(found[0]) == {"id": 1, "note": "x"}
    assert [row._bad for row in found] == [
        *(None, "id: 99999999999 does not fit INT", "not one protobuf value of this schema")
    ]


def test_encode_json_is_read_back(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, None), (None, 'a "b"')], "i INT, t STRING").coalesce(1)
    texts = [row.v for row in frame.select(encode(frame, "json", {}).alias("v")).collect()]
    assert texts == ['{"i":1,"t":null}', '{"i":null,"t":"a \\"b\\""}']
    back = decoded(spark, texts, "json", "i INT, t STRING")
    assert [(row.i, row.t, row._bad) for row in back] == [(1, None, None), (None, 'a "b"', None)]
    with pytest.raises(UnsupportedError, match="csv"):
        encode(frame, "csv", {})


def test_unknown_format_and_forbidden_option(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no format is named 'jsn'") as raised:
        decoded(spark, ["{}"], "jsn", COLUMNS)
    assert "did you mean json" in str(raised.value)
    with pytest.raises(ConfigError, match=r"json\.mode cannot be set"):
        decoded(spark, ["{}"], "json", COLUMNS, json__mode="DROPMALFORMED")


def test_coordinates_follow_pyspark() -> None:
    version = spark_version()
    assert coordinates(["kafka", "AVRO", "kafka"]) == (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
        f"org.apache.spark:spark-avro_2.13:{version}",
    )
    pinned = "org.apache.spark:spark-avro_2.13:4.1.1"
    assert coordinates(["avro", pinned]) == (pinned,)
    with pytest.raises(ConfigError, match="no Spark package is named 'kafak'"):
        coordinates(["kafak"])


def test_a_package_that_cannot_be_downloaded_is_named() -> None:
    said = """
	Host repo.invalid not found. url=https://repo.invalid/a/b/1.0/b-1.0.pom
	Host repo.invalid not found. url=https://repo.invalid/a/b/1.0/b-1.0.jar
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.a#b_2.13;1.0: not found, \
unresolved dependency: c#d;2-rc1: not found]
	at org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
"""
    failure = download_failure(said)
    assert failure is not None
    assert failure.message == "Spark packages org.a:b_2.13:1.0, c:d:2-rc1 cannot be downloaded"
    assert failure.detail == "Host repo.invalid not found"
    one = download_failure("[download failed: org.a#b_2.13;1.0!b_2.13.jar]")
    assert one is not None
    assert one.message == "the Spark package org.a:b_2.13:1.0 cannot be downloaded"
    assert download_failure("java: command not found") is None
