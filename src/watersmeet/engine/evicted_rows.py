"""Evicted rows as side output: what was stored of each, as JSON, and why it had to go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.engine.frames import side_rows
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.api import Evicted, StepResult

EVICTED = "evicted"


def evicted_rows(spec: OperatorSpec, result: StepResult) -> list[pa.Table]:
    """Return the rows that a step evicted, a table of side output for each reason and side."""
    return [_side_output(spec, each) for each in result.evicted]


def _side_output(spec: OperatorSpec, evicted: Evicted) -> pa.Table:
    input = spec.inputs[evicted.input]
    texts = [json.dumps(dict(_named(row, input)), default=str) for row in evicted.rows.to_pylist()]
    reason = pa.array([f"{spec.name}: {evicted.reason}"] * len(texts), pa.string())
    return side_rows(EVICTED, input.label, reason, pa.array(texts, pa.string()))


def _named(row: dict[str, Any], input: InputSpec) -> Iterator[tuple[str, Any]]:
    """The event time, and the columns as queries name them; hidden ones only count."""
    time = row.get(f"{input.label}:{TIME}", row[TIME])  # a row that expires is stored under its expiry
    yield input.time, _time(time, input.scale)
    for name, value in row.items():
        alias, _, column = name.partition(":")
        if column and not column.startswith("$"):
            yield column if alias == input.label else f"{alias}.{column}", value


def _time(time: int, scale: int | None) -> object:
    if scale is not None:
        whole = Decimal(time) / scale
        return int(whole) if whole == int(whole) else f"{whole:f}"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).isoformat(sep=" ")
