"""Raw text as rows, in the harness: what connectors/formats.py does in Spark, for JSON, in plain Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

from watersmeet.catalog import StreamDef
from watersmeet.testing.cells import Row, Value, parse_cell
from watersmeet.testing.notation import NotationError

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FRACTIONS = ("FLOAT", "DOUBLE", "DECIMAL")


def decode_json(records: Sequence[str], stream: StreamDef) -> tuple[list[Row], list[tuple[str, str]]]:
    """The good rows, and (raw text, reason) of the bad ones."""
    rows: list[Row] = []
    bad: list[tuple[str, str]] = []
    for record in records:
        try:
            document = json.loads(record, parse_float=Decimal)
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
            folded = {name.lower(): value for name, value in document.items()}
            rows.append(tuple(_value(folded.get(each.name.lower()), each.type, each.name) for each in stream.columns))
        except (ValueError, NotationError) as error:
            bad.append((record, str(error)))
    return rows, bad


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
        return json.dumps(value)
    if not fits:
        raise ValueError(f"{column}: {json.dumps(value, default=str)} does not fit {type_name}")
    return parse_cell(str(value).lower() if isinstance(value, bool) else str(value), type_name)
