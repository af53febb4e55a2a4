"""Whatever the workers decode of CSV is exactly what Spark makes of it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tests.connectors.conftest import struct_of
from tests.spark.test_json_records import CHOICES, COLUMNS, NAMES, PLAIN, ZONES, shown
from watersmeet.columns import BAD
from watersmeet.connectors.formats.record_decoders import decoder_of
from watersmeet.connectors.formats.values import decode
from watersmeet.records.csv import csv_decoder

RECORDS = 3_000
_TEXTS = r"""
true True TRUE false tRue t 1 yes 0.5 -.5 5. 1d 1f 1D 0x1p3 1e5 -0 -0.0 00012 +5 1,5 ١٢ ½ NULL null \N \" # #a // - --
12345.6 12345.67 12345.678 99999.99 99999.994 100000.00 -99999.99 123456789.123456 123456789.1234567 1234567890.5
0.000001 16777217 0.1 0.3 33554433.5 é 日本 a\nb a\tb ' '' a'b 1_000
"""


def cell(r: random.Random, name: str) -> str:
    match r.randint(0, 19):
        case 0:
            return r.choice(CHOICES)
        case 1:
            return r.choice(_TEXTS.split())
        case 2:
            return r.choice((" ", "\t", "\u00a0", "\u2003", "\ufeff", "\x00", "\x7f", "\r")) + str(PLAIN[name](r))
        case 3:
            return str(PLAIN[name](r)) + r.choice((" ", "\t", "\u00a0", "\u3000", "\x1f", "\n"))
        case 4 | 5:
            return ""
        case _ if name in "df":
            return f"{r.uniform(-1e5, 1e5):.{r.randint(0, 8)}f}"
        case _ if name == "o":
            return r.choice(("true", "false"))
        case _:
            return str(PLAIN[name](r))


def record(r: random.Random) -> bytes:
    cells = [cell(r, name) if r.random() < 0.3 else "" for name in NAMES]
    match r.randint(0, 30):
        case 0:
            cells.pop()
        case 1:
            cells.append(r.choice(("", "x")))
        case 2:
            cells = [f'"{each}"' for each in cells]
    line = ",".join(cells).encode(errors="surrogatepass")
    match r.randint(0, 30):
        case 0:
            at = r.randint(0, len(line))
            line = line[:at] + bytes([r.randint(0, 255)]) + line[at + r.randint(0, 1) :]
        case 1:
            line = line[: r.randint(0, len(line))]
        case 2:
            line += r.choice((b" ", b"\n", b"\r\n", b"\n1,2", b"\x00", b","))
        case 3:
            line = r.choice((b" ", b"\n", b"\xef\xbb\xbf", b"#", b"")) + line
    return line


@pytest.mark.slow
def test_what_the_workers_decode_is_what_spark_decodes(spark: SparkSession) -> None:
    r = random.Random(24)
    records = [record(r) for _ in range(RECORDS)] + [b"," * 12, b"," * 11, b",,,,,,,," + b"x" * 20_000 + b",,,,"]
    records += [f",,,,,,,,,,,2022-01-01T00:00:00{zone},".encode() for zone in ZONES]
    columns = struct_of(COLUMNS)
    schema = to_arrow_schema(columns, timezone="UTC")
    decoder = csv_decoder(schema)
    assert decoder is not None
    frame = spark.createDataFrame(list(enumerate(records)), "number INT, v BINARY").coalesce(1)
    by_spark = decode(frame, "v", "csv", columns, {}).orderBy("number").toArrow()
    reasons, texts = by_spark[BAD].to_pylist(), by_spark.select(NAMES).cast(schema)
    count, wrong = 0, []
    for number, each in enumerate(records):
        found = decoder.decode(pa.array([each], pa.binary()))
        if len(found.left):
            continue
        count += 1
        expected = texts.slice(number, 1)
        if reasons[number] is not None or shown(found.rows) != shown(expected):
            wrong.append((each, reasons[number], shown(found.rows)))
    assert not wrong
    assert count > RECORDS / 4


def test_spark_reads_times_with_its_old_calendar(spark: SparkSession) -> None:
    def is_for_workers(columns: str) -> list[bool]:
        return [decoder_of(spark, each, struct_of(columns), {}, None) is not None for each in ("csv", "json")]

    assert is_for_workers("i INT, dt DATE") == [True, True]
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        assert is_for_workers("i INT, dt DATE") == [False, False]
        assert is_for_workers("i INT, n TIMESTAMP_NTZ") == [False, False]
        assert is_for_workers("i INT") == [True, True]
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")
