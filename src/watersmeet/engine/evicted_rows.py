"""Evicted rows as side output: what was stored of each, as JSON, and why it had to go."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from watersmeet.columns import TIME
from watersmeet.engine.frames import side_rows
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.engine.time_texts import time_text
from watersmeet.kernels.api import Evicted, StepResult, pieces_of

EVICTED = "evicted"
#: Rows become Python objects before they are JSON, which take some ten times their memory: so few at a time.
_ROWS_AT_ONCE = 10_000


def evicted_rows(spec: OperatorSpec, result: StepResult) -> Iterator[pa.Table]:
    """Yield the rows that a step evicted, as tables of side output."""
    for evicted in result.evicted:
        for piece in pieces_of(evicted.rows):
            for start in range(0, piece.num_rows, _ROWS_AT_ONCE):
                yield _side_output(spec, evicted, piece.slice(start, _ROWS_AT_ONCE))


def _side_output(spec: OperatorSpec, evicted: Evicted, rows: pa.Table) -> pa.Table:
    input = spec.inputs[evicted.input]
    texts = [json.dumps(dict(_named(row, input)), default=_text) for row in _readable(rows).to_pylist()]
    reason = pa.array([f"{spec.name}: {evicted.reason}"] * len(texts), pa.string())
    return side_rows(EVICTED, input.label, reason, pa.array(texts, pa.string()))


def _readable(rows: pa.Table) -> pa.Table:
    """Return rows whose timestamps are texts: Python has no datetime for all of them."""
    schema = [field.with_type(pa.string()) if pt.is_timestamp(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(schema))


def _named(row: dict[str, Any], input: InputSpec) -> Iterator[tuple[str, Any]]:
    """The event time, and the columns as queries name them; hidden ones only count."""
    time = row.get(f"{input.label}:{TIME}", row[TIME])  # a row that expires is stored under its expiry
    whole = _number(time, input.scale)
    yield input.time, time_text(time, input.scale) if whole is None else whole
    for name, value in row.items():
        alias, _, column = name.partition(":")
        if column and not column.startswith("$"):
            yield column if alias == input.label else f"{alias}.{column}", _finite(value)


def _number(time: int, scale: int | None) -> int | None:
    """A whole number of the column's unit, if the time is one."""
    return None if scale is None or time % scale else time // scale


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
