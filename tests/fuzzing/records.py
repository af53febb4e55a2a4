"""Random, damaged and good records through the decoders of the workers.

Each record is decoded or left to Spark, exactly once and in order; what is decoded is what a slow reader makes of the
same bytes, whatever stands beside it.
"""

from __future__ import annotations

import json
import random
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.fuzzing.octets import damaged
from tests.support import avro_records
from watersmeet.records.avro import avro_decoder
from watersmeet.records.csv import csv_decoder
from watersmeet.records.debezium import ChangeTime, debezium_decoder
from watersmeet.records.decoder import Decoded, Decoder
from watersmeet.records.json import json_decoder

COLUMNS = pa.schema([("i", pa.int32()), ("t", pa.string()), ("d", pa.float64()), ("b", pa.bool_())])
_MORE = pa.schema([*COLUMNS, ("ts", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("m", pa.decimal128(10, 2))])
_TEXTS = ("", "a", "é😀", 'q"', "back\\slash", "line\nfeed", "null", "NaN", "x" * 60, "\x01", "\u2028")
_NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**63, 1.5, -0.0, 1e300, 5e-324, 12345678.25)
_USUAL = (0, 1, -7, 0.5, 12345678.25, 1e300)
_TIMES = (
    "2022-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2022-01-01", "9999-12-31T23:59:59.999999Z", "x", "1640995200",
)  # fmt: skip

Row = list[Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A decoder, what makes a good record for it, and the rows that its bytes stand for (None: they are not good)."""

    decoder: Decoder
    good: Callable[[random.Random], bytes]
    expected: Callable[[bytes], Sequence[Row] | None]
    #: How many of the columns ``expected`` knows: the first ones.
    known: int
    #: Whether a record without a value is one without rows.
    has_tombstones: bool = False


def campaign(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """Try one batch of records of each kind for the seeds from ``first`` on; the counts, and the faults."""
    counts: Counter[str] = Counter()
    faults = []
    for seed in range(first, first + count):
        for name, kind in _kinds(random.Random(seed)).items():
            rng = random.Random(f"{seed} {name}")
            try:
                faults += [f"seed {seed}, {name}: {fault}" for fault in _faults(kind, _records(rng, kind), rng, counts)]
            except Exception:  # noqa: BLE001 - that is what this looks for
                faults.append(f"seed {seed}, {name}: {traceback.format_exc(limit=-6)}")
    return counts, faults


def _records(rng: random.Random, kind: _Kind) -> list[bytes | None]:
    def record() -> bytes | None:
        draw = rng.random()
        if draw < 0.04:
            return None
        if draw < 0.08:
            return rng.randbytes(rng.choice((0, 1, 10, 100)))
        good = kind.good(rng)
        return damaged(rng, good, kind.good(rng)) if draw < share else good

    share = rng.choice((0.08, 0.1, 0.5, 0.9))
    return [record() for _ in range(rng.choice((0, 1, 3, 5, 10, 40, 120)))]


def _faults(kind: _Kind, records: Sequence[bytes | None], rng: random.Random, counts: Counter[str]) -> Iterator[str]:
    found = kind.decoder.decode(pa.array(records, pa.binary()))
    counts["records"] += len(records)
    counts["decoded"] += len(set(found.records.tolist()))
    counts["left"] += len(found.left)
    yield from _unaccounted(kind, records, found)
    rows = _by_record(found)
    for number in set(found.records.tolist()):
        octets = records[number]
        expected = kind.expected(octets) if octets is not None else None
        shown = [row[: kind.known] for row in rows[number]]
        if expected is None or not _same(shown, [row[: kind.known] for row in expected]):
            yield f"{octets!r} was decoded to {shown}, not {expected}"
    for number in rng.sample(range(len(records)), min(3, len(records))):
        alone = kind.decoder.decode(pa.array([records[number]], pa.binary()))
        if rows[number] and len(alone.records) and not _same(rows[number], _by_record(alone)[0]):
            yield f"{records[number]!r} alone is {_by_record(alone)[0]}, among others {rows[number]}"
        if rows[number] and not len(alone.records):
            yield f"{records[number]!r} is decoded among others only"


def _unaccounted(kind: _Kind, records: Sequence[bytes | None], found: Decoded) -> Iterator[str]:
    decoded, left = found.records.tolist(), found.left.tolist()
    if found.rows.num_rows != len(decoded):
        yield f"{found.rows.num_rows} rows for {len(decoded)} numbers"
    if decoded != sorted(decoded) or left != sorted(set(left)):
        yield f"out of order: {decoded}, {left}"
    missing = set(range(len(records))) - set(decoded) - set(left)
    if kind.has_tombstones:
        missing -= {number for number, record in enumerate(records) if record is None}
    if missing or set(decoded) & set(left) or not {*decoded, *left} <= set(range(len(records))):
        yield f"missing {missing}, twice {set(decoded) & set(left)}"
    found.rows.validate(full=True)


def _by_record(found: Decoded) -> dict[int, list[Row]]:
    rows: dict[int, list[Row]] = defaultdict(list)
    for number, row in zip(found.records.tolist(), avro_records.plain(found.rows), strict=True):
        rows[number].append(row)
    return rows


def _same(one: Sequence[Row], other: Sequence[Row]) -> bool:
    """Whether rows are equal; NaN equals itself, and truth is not 1."""
    return repr(one) == repr(other)


# -- the kinds of records ----------------------------------------------------------------------------------------------


def _kinds(rng: random.Random) -> dict[str, _Kind]:
    keeps_before = rng.random() < 0.5
    fields = avro_records.random_fields(rng)
    avro = avro_decoder(avro_records.schema_of(fields), avro_records.columns_of(fields))
    time = ChangeTime("ts", 1) if keeps_before and rng.random() < 0.5 else None
    image = pa.schema([*COLUMNS, *([pa.field("ts", pa.timestamp("us", "UTC"))] if time else [])])
    kinds = {
        "json": _Kind(_known(json_decoder(_MORE)), _good_json, _expected_json, len(COLUMNS)),
        "csv": _Kind(_known(csv_decoder(COLUMNS)), _good_csv, _expected_csv, len(COLUMNS)),
        "debezium": _Kind(
            _known(debezium_decoder(image, time, keeps_before=keeps_before)),
            _good_change,
            lambda octets: _expected_changes(octets, keeps_before),
            len(COLUMNS),
            has_tombstones=True,
        ),
    }
    if avro is not None:
        kinds["avro"] = _Kind(
            avro,
            lambda own: (avro_records.good_record if own.random() < 0.7 else avro_records.hostile_record)(own, fields),
            lambda octets: None if (row := avro_records.expected_row(fields, octets)) is None else [row],
            len(fields),
        )
    return kinds


def _known(decoder: Decoder | None) -> Decoder:
    assert decoder is not None
    return decoder


def _value(rng: random.Random, name: str) -> Any:
    if rng.random() < 0.03:
        return rng.choice((None, *_TEXTS, *_NUMBERS, True, [1], {"i": 1}))
    match name:
        case "t":
            return rng.choice(_TEXTS)
        case "b":
            return rng.random() < 0.5
        case "ts":
            return rng.choice(_TIMES[:2] if rng.random() < 0.9 else _TIMES)
        case "day":
            return "2022-01-01" if rng.random() < 0.9 else rng.choice(_TIMES)
        case "i":
            return rng.choice((0, 1, -1, 2**31 - 1, -(2**31), 77))
        case "m":
            return rng.choice((0, 1.5, -12.25, 99999999.99))
        case _:
            return rng.choice(_USUAL if rng.random() < 0.8 else _NUMBERS)


def _image(rng: random.Random) -> dict[str, Any]:
    names = [*_MORE.names, "more"]
    chosen = rng.sample(names, rng.randrange(len(names) + 1))
    return {name: _value(rng, name) for name in chosen}


def _good_json(rng: random.Random) -> bytes:
    return json.dumps(
        _image(rng), ensure_ascii=rng.random() < 0.5, separators=rng.choice(((",", ":"), (" , ", " : ")))
    ).encode()


def _expected_json(octets: bytes) -> list[Row] | None:
    try:
        value = json.loads(octets.decode())
    except (ValueError, RecursionError):
        return None
    return None if (row := _json_row(value)) is None else [row]


def _json_row(value: Any) -> Row | None:
    """The known columns; None if a value has not the declared type."""
    if not isinstance(value, dict):
        return None
    number, text, fraction, truth = (value.get(name) for name in COLUMNS.names)
    fits = (
        (number is None or (type(number) is int and -(2**31) <= number < 2**31))
        and (text is None or isinstance(text, str))
        and (fraction is None or type(fraction) in (int, float))
        and (truth is None or type(truth) is bool)
    )
    return [number, text, None if fraction is None else repr(float(fraction)), truth] if fits else None


def _good_csv(rng: random.Random) -> bytes:
    is_odd = rng.random() < 0.2
    number = rng.choice((2**31, 2**63, "x", " 1") if is_odd else (1, -5, 2**31 - 1, ""))
    text = rng.choice(_TEXTS if is_odd else ("", "a", "é😀", "a b", " a ", "null", "back\\slash"))
    fraction = rng.choice(_NUMBERS if is_odd else (0, 1.5, -12345678.25, ""))
    return ",".join([str(number), text, str(fraction), rng.choice(("true", "false", ""))]).encode()


def _expected_csv(octets: bytes) -> list[Row] | None:
    try:
        number, text, fraction, truth = octets.decode().split(",")
        row: Row = [
            int(number) if number else None,
            text or None,
            repr(float(fraction)) if fraction else None,
            {"true": True, "false": False, "": None}[truth],
        ]
    except (ValueError, KeyError):
        return None
    return [row]


def _good_change(rng: random.Random) -> bytes:
    change: dict[str, Any] = {"op": rng.choice(("c", "r", "u", "u", "d", "t", None, 1))}
    for name in ("before", "after"):
        if rng.random() < 0.8:
            change[name] = rng.choice((None, _image(rng), _image(rng), _image(rng), {}))
    change["ts_ms"] = rng.choice((1640995200000, None, 2**60, "x"))
    if rng.random() < 0.5:
        change["source"] = {"ts_ms": rng.choice((1640995200001, None, -1))}
    if rng.random() < 0.4:
        change = {"schema": {"fields": []}, "payload": change}
    return json.dumps(change).encode()


def _expected_changes(octets: bytes, keeps_before: bool) -> list[Row] | None:
    try:
        change = json.loads(octets.decode())
    except (ValueError, RecursionError):
        return None
    if isinstance(change, dict) and change.get("op") is None and change.get("payload") is not None:
        change = change["payload"]
    if not isinstance(change, dict) or change.get("op") not in ("c", "r", "u", "d"):
        return None
    ends = change["op"] == "d" or (change["op"] == "u" and keeps_before)
    images = [change.get("before")] if ends else []
    images += [change.get("after")] if change["op"] != "d" else []
    rows = [_json_row(image) for image in images]
    return None if any(row is None for row in rows) else [row for row in rows if row is not None]
