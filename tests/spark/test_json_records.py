"""Whatever the workers decode of JSON is exactly what Spark makes of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tests.connectors.conftest import struct_of
from watersmeet.columns import BAD
from watersmeet.connectors.formats.values import decode
from watersmeet.records.json import json_decoder

COLUMNS = (
    "i INT, b TINYINT, s SMALLINT, l BIGINT, d DOUBLE, f FLOAT, m DECIMAL(7,2), h DECIMAL(38,10), t STRING, "
    "o BOOLEAN, dt DATE, ts TIMESTAMP, n TIMESTAMP_NTZ"
)
NAMES = [part.split()[0] for part in COLUMNS.split(", ")]
RECORDS = 2_000
_CHOICES = r"""
null true false 0 -0 1 -1 127 128 -128 -129 255 32767 32768 2147483647 2147483648 9223372036854775807
9223372036854775808 -9223372036854775808 1.0 1.5 1.005 0.1 -0.0 1e2 1E+2 1e-2 1e22 1e400 -1e400 4.9e-324 1e-400
3.4028235e38 3.4028236e38 1.17549435e-38 1e-45 16777217 16777217.0000001 0.333333333333333333333
12345.67 12345.675 123456.78 99999.994 99999.995 NaN Infinity -Infinity Inf -Inf INF +1 01 1. .5 0x10 1_000
"" "x" "1" "1.5" "1e2" "+1" "1,000" "NaN" "Infinity" "true" "null" "é" "\u0000" "\ud83d\ude00" "\ud83d" "\ude00" "\/"
"\x" "a\nb" {} [] {"x":1} [1,null] {"i":2} "2022-01-01" "2022-02-30" "0001-01-01" "9999-12-31" "10000-01-01" "2022-1-1"
"2022-01-01T" "2022-01-01T00:00:00" "2022-01-01T00:00:00Z" "2022-01-01T00:00:00.1" "2022-01-01T23:59:59.123456Z"
"2022-01-01T23:59:59.1234567Z" "2022-01-01T23:59:59.123+02:00" "2022-01-01T24:00:00Z" "2022-01-01T23:59:60Z"
"2022-01-01T00:00:00+0100" "2022-01-01T00:00:00z" "2022-01-01T00:00Z" "0000-01-01T00:00:00Z" "0001-01-01T00:00:00Z"
"9999-12-31T23:59:59.999999Z" "1582-10-10T00:00:00Z" 1640995200 253402300799 253402300800 -62135596800 -62135596801
99999999999999 1.8e308 -1.8e308 1.7976931348623159e308 1.7976931348623157e308 1e27 1e28 1e30 1e66 1e70 "1e30"
1000000000000000000000000000000 99999999999999999999999999999.9999999999 9999999999999999999999999999.9999999999
9999999999999999999999999999 10000000000000000000000000000 "99999999999999999999999999999999999999"
"9999-12-31T23:59:59.999999-17:00" "9999-12-31T23:59:59-00:01" "0000-01-01T00:00:00+17:00"
"""
ZONES = ("Z", "+17:59", "-17:59", "+18:00", "-18:00", "+18:01", "-18:30", "+19:00", "+02:60", "+99:00", "-00:00")
CHOICES = [
    *_CHOICES.split(),
    '" 1"',
    '"a\tb"',
    '"2022-01-01 00:00:00"',
    '"2022-01-01T00:00:00 UTC"',
    '"x, NaN"',
    '"Inf"',
]


def _moment(r: random.Random) -> str:
    fraction = r.choice(("", f".{r.randint(0, 999999):06d}", f".{r.randint(0, 999):03d}", f".{r.randint(0, 9)}"))
    day = f"{r.randint(1, 9999):04d}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"
    return f"{day}{r.choice('T ')}{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}{fraction}"


PLAIN: dict[str, Callable[[random.Random], object]] = {
    "i": lambda r: r.randint(-(2**31), 2**31 - 1),
    "b": lambda r: r.randint(-128, 127),
    "s": lambda r: r.randint(-(2**15), 2**15 - 1),
    "l": lambda r: r.randint(-(2**63), 2**63 - 1),
    "d": lambda r: r.uniform(-1e9, 1e9) * 10.0 ** r.randint(-300, 290),
    "f": lambda r: r.uniform(-1e3, 1e3) * 10.0 ** r.randint(-30, 30),
    "m": lambda r: r.randint(-9_999_999, 9_999_999) / 100,
    "h": lambda r: r.randint(-(10 ** r.randint(1, 40)), 10 ** r.randint(1, 40)),
    "t": lambda r: "".join(
        chr(r.choice((65, 10, 34, 92, 0, 233, 8364, 128512, r.randint(32, 0xD7FF)))) for _ in range(r.randint(0, 9))
    ),
    "o": lambda r: r.random() < 0.5,
    "dt": lambda r: f"{r.randint(1, 9999):04d}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}",
    "ts": lambda r: _moment(r) + r.choice(("Z", "", "+02:00", "-11:30")),
    "n": _moment,
}


def plain_record(r: random.Random) -> bytes:
    chosen = {name: PLAIN[name](r) for name in r.sample(NAMES, r.randint(1, len(NAMES)))}
    return json.dumps(chosen, ensure_ascii=r.random() < 0.5, separators=r.choice(((",", ":"), (", ", ": ")))).encode()


def hostile_record(r: random.Random) -> bytes:
    names = [*NAMES, "u", "I", "\\u0069"]
    fields = [f'"{r.choice(names)}"{r.choice((":", ": ", " :"))}{r.choice(CHOICES)}' for _ in range(r.randint(0, 3))]
    record = ("{" + ",".join(fields) + "}").encode()
    match r.randint(0, 9):
        case 0:
            at = r.randint(0, len(record))
            record = record[:at] + bytes([r.randint(0, 255)]) + record[at + r.randint(0, 1) :]
        case 1:
            record = record[: r.randint(0, len(record))]
        case 2:
            record += r.choice((b" ", b"\n", b"{}", b"\n{}", b',{"i":1}', b"]", b"\x00", b"//"))
        case 3:
            record = r.choice((b" ", b"\n", b"\xef\xbb\xbf", b"[", b"")) + record
    return record


def long_records() -> list[bytes]:
    deep = [b'{"u":' + b"[" * n + b"]" * n + b"}" for n in (400, 998, 1001, 30_000)]
    digits = [b'{"u":' + b"1" * n + b"}" for n in (400, 999, 1001)] + [
        b'{"d":0.' + b"1" * n + b"}" for n in (400, 1200)
    ]
    names = [b'{"' + b"x" * n + b'":1,"i":1}' for n in (1_000, 49_000, 60_000)]
    return [*deep, *digits, *names, b'{"t":"' + b"y" * 40_000 + b'"}', b'{"t":"' + b"y" * 100_000 + b'"}']


def shown(rows: pa.Table) -> str:
    """Rows as text, in which NaN equals itself; times as numbers, since Python has no year 0."""
    numbers = [pa.int64() if pa.types.is_timestamp(each.type) else each.type for each in rows.schema]
    return repr(rows.cast(pa.schema(list(zip(rows.column_names, numbers, strict=True)))).to_pylist())


def test_what_the_workers_decode_is_what_spark_decodes(spark: SparkSession) -> None:
    r = random.Random(24)
    records = [(plain_record if r.random() < 0.3 else hostile_record)(r) for _ in range(RECORDS)] + long_records()
    records += [f'{{"ts":"2022-01-01T00:00:00{zone}"}}'.encode() for zone in ZONES]
    columns = struct_of(COLUMNS)
    schema = to_arrow_schema(columns, timezone="UTC")
    decoder = json_decoder(schema)
    assert decoder is not None
    frame = spark.createDataFrame(list(enumerate(records)), "number INT, v BINARY").coalesce(1)
    by_spark = decode(frame, "v", "json", columns, {}).orderBy("number").toArrow()
    reasons, texts = by_spark[BAD].to_pylist(), by_spark.select(NAMES).cast(schema)
    count, wrong = 0, []
    for number, record in enumerate(records):
        found = decoder.decode(pa.array([record], pa.binary()))
        if len(found.left):
            continue
        count += 1
        expected = texts.slice(number, 1)
        if reasons[number] is not None or shown(found.rows) != shown(expected):
            wrong.append((record, reasons[number], shown(found.rows)))
    assert not wrong
    assert count > RECORDS / 5
