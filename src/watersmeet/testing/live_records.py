"""Rows of the test notation as records of a Kafka topic, for queries in real time.

A row becomes a JSON object that has all declared columns.  In a stream that changes and does not declare ``_tp_delta``,
the topic declares it: a record without a value, Kafka's own delete, has nothing but the key.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.runtime.source_frames import Source
from watersmeet.testing.cells import Value
from watersmeet.testing.nested_cells import Entries
from watersmeet.testing.rig import StepInput

_DELTA = StreamColumn(name=TP_DELTA, type="TINYINT")


def in_topic(stream: StreamDef, brokers: str, topic: str) -> StreamDef:
    """Return the stream as the definition of a topic that holds its records."""
    hides_delta = stream.changes and stream.column(TP_DELTA) is None
    columns = (*stream.columns, _DELTA) if hides_delta else stream.columns
    options = {"brokers": brokers, "topic": topic, "format": stream.options.get("format", "json")}
    return stream.model_copy(update={"connector": "kafka", "columns": columns, "options": options})


def with_deltas_read(source: Source, topic: StreamDef) -> Source:
    """Return the source of a topic for a query over the stream itself, which may not declare ``_tp_delta``."""
    if source.live is None or not topic.changes:
        return source
    return replace(source, live=replace(source.live, format=replace(source.live.format, has_deltas=True)))


def records(stream: StreamDef, step: StepInput) -> Iterator[bytes]:
    """Yield a step's rows of a stream that ``in_topic`` returned, then its raw records."""
    names = [column.name for column in stream.columns]
    for row in step.rows:
        yield _object(zip(names, row if len(row) == len(names) else (*row, 1), strict=True)).encode()
    for record in step.raw:
        yield record.encode()


def _object(fields: Iterable[tuple[str, Value]]) -> str:
    return f"{{{', '.join(f'{json.dumps(name)}: {_json(value)}' for name, value in fields)}}}"


def _json(value: Value) -> str:
    match value:
        case Entries():
            return _object((key if isinstance(key, str) else _json(key).strip('"'), each) for key, each in value)
        case dict():
            return _object(value.items())
        case list():
            return f"[{', '.join(map(_json, value))}]"
        case Decimal():
            return f"{value:f}"
        case float() if math.isnan(value):
            return '"NaN"'
        case float() if math.isinf(value):
            return '"Infinity"' if value > 0 else '"-Infinity"'
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case datetime() | date():
            return json.dumps(value.isoformat())
        case _:
            return json.dumps(value)
