"""Debezium's change records in the harness; connectors/formats/debezium.py gives the same results in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from watersmeet.catalog.streams import StreamDef, StreamMode
from watersmeet.connectors.formats.envelope import NO_KEY, NO_OP, REPLICA_IDENTITY, TRUNCATED
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.testing.cells import EPOCH, Value


@dataclass(frozen=True, slots=True)
class Change:
    """One image of a row, by lower-case column name; ``time`` replaces its event time if ``is_timed``."""

    image: Mapping[str, object]
    delta: int
    time: Value = None
    is_timed: bool = False


def changes_of(record: Mapping[str, object], stream: StreamDef) -> Iterator[Change]:
    """Yield the changes of an envelope, in order; a ValueError says what is wrong with it."""
    envelope = _object(record, "payload") if record.get("op") is None and record.get("payload") else record
    op = envelope.get("op")
    if op is None:
        raise ValueError(NO_OP)
    if op == "t":
        raise ValueError(TRUNCATED)
    if op not in ("c", "r", "u", "d"):
        raise ValueError(f"op {op} is not known: it is c, r, u or d")
    before, after = envelope.get("before"), envelope.get("after")
    if op != "d" and after is None:
        raise ValueError(f"op {op} without after")
    is_versioned = stream.mode is StreamMode.VERSIONED
    if op in ("u", "d") and before is None and not is_versioned:
        raise ValueError(f"op {op} without before: {REPLICA_IDENTITY}")
    if op == "d" and before is None:
        raise ValueError(NO_KEY)
    happened = _happened(envelope, stream)
    time = stream.time_column.lower()
    if op == "d" or (op == "u" and not is_versioned):
        image = _object(envelope, "before")
        has_time = time in image
        if has_time and image[time] is None and not is_versioned:
            raise ValueError(f"before has no {stream.time_column}: {REPLICA_IDENTITY}")
        yield Change(image, -1, happened, is_timed=is_versioned or not has_time)
    if op != "d":
        image = _object(envelope, "after")
        yield Change(image, 1, happened, is_timed=time not in image)


def _object(record: Mapping[str, object], name: str) -> dict[str, object]:
    found = record[name]
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return {key.lower(): value for key, value in found.items()}


def _happened(envelope: Mapping[str, object], stream: StreamDef) -> Value:
    """Return when the change happened, as a value of the event-time column."""
    source = envelope.get("source")
    millis = source.get("ts_ms") if isinstance(source, dict) else None
    millis = envelope.get("ts_ms") if millis is None else millis
    if not isinstance(millis, int) or stream.time_unit is TimeUnit.ROWS:
        return None
    if stream.time_unit.is_integer:
        return millis * 1000 // stream.time_unit.scale
    instant = EPOCH + timedelta(milliseconds=millis)
    return instant if stream.time_unit is TimeUnit.TIMESTAMP else instant.replace(tzinfo=None)
