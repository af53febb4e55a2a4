"""A stream's rows in the harness: what a connector brings on Spark, hidden columns included.

Raw text is decoded as connectors/formats.py does it in Spark, for JSON only, in plain Python.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from watersmeet.catalog import StreamDef
from watersmeet.columns import BAD, RAW, SEQUENCE, TP_TIME
from watersmeet.errors import UnsupportedError
from watersmeet.plan.arrow_types import arrow_type
from watersmeet.testing.bench import StepInput
from watersmeet.testing.case import NotationError
from watersmeet.testing.cells import Row, Value, parse_cell

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FRACTIONS = ("FLOAT", "DOUBLE", "DECIMAL")


def source_table(stream: StreamDef, given: StepInput, seen: int) -> pa.Table:
    """A step's rows, then its records, the bad ones last; ``seen`` rows of the stream came before.

    The time of arrival is the number of rows seen, in microseconds.
    """
    decoded, bad = _decode(given.raw, stream)
    good = [*given.rows, *decoded]
    count = len(good) + len(bad)
    padded = [*good, *([(None,) * len(stream.columns)] * len(bad))]
    columns = {
        column.name: pa.array([row[i] for row in padded], arrow_type(exp.DataType.build(column.type, dialect="spark")))
        for i, column in enumerate(stream.columns)
    }
    columns.setdefault(TP_TIME, pa.array([seen] * count, pa.int64()).cast(pa.timestamp("us", tz="UTC")))
    columns[SEQUENCE] = pa.array([(seen + i).to_bytes(8, "big") for i in range(count)], pa.binary())
    columns[BAD] = pa.array([None] * len(good) + [reason for _, reason in bad], pa.string())
    columns[RAW] = pa.array([None] * len(good) + [raw for raw, _ in bad], pa.string())
    return pa.table(columns)


def _decode(records: Sequence[str], stream: StreamDef) -> tuple[list[Row], list[tuple[str, str]]]:
    """The good rows, and (raw text, reason) of the bad ones."""
    format = stream.options.get("format", "json").lower()
    if records and format != "json":
        raise UnsupportedError(
            f"{stream.name} has format {format}, and without Spark only json is read",
            hint="run the case with --spark",
        )
    rows: list[Row] = []
    bad: list[tuple[str, str]] = []
    for record in records:
        try:
            fields = _fields(record)
            rows.append(tuple(_value(fields.get(each.name.lower()), each.type, each.name) for each in stream.columns))
        except (ValueError, NotationError) as error:
            bad.append((record, str(error)))
    return rows, bad


def _fields(record: str) -> dict[str, object]:
    """The values of a JSON object by lower-case name."""
    try:
        document = json.loads(record, parse_float=Decimal)
    except ValueError:
        raise ValueError("not valid JSON") from None
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return {name.lower(): value for name, value in document.items()}


def _value(value: object, type_name: str, column: str) -> Value:
    if value is None:
        return None
    base = type_name.split("(", maxsplit=1)[0].upper()
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    fits = (
        (base in _INTEGERS and isinstance(value, int) and is_number)
        or (base in _FRACTIONS and is_number)
        or (base == "BOOLEAN" and isinstance(value, bool))
        or (base not in (*_INTEGERS, *_FRACTIONS, "BOOLEAN") and isinstance(value, str))
    )
    if base == "STRING" and not isinstance(value, str):
        return str(value) if isinstance(value, Decimal) else json.dumps(value, separators=(",", ":"), default=float)
    if not fits:
        raise ValueError(f"{column}: {json.dumps(value, default=float)} does not fit {type_name}")
    return parse_cell(str(value).lower() if isinstance(value, bool) else str(value), type_name)
