"""What a statement gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import DataFrame

from watersmeet.runtime.query import RunningQuery


@dataclass(frozen=True, slots=True)
class Message:
    """A statement that was carried out, in one sentence."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to look at: SHOW, DESCRIBE."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The text of EXPLAIN."""

    text: str


@dataclass(frozen=True, slots=True)
class Started:
    """A query that runs now."""

    query: RunningQuery


@dataclass(frozen=True, slots=True)
class Stream:
    """The result of a SELECT: a Spark streaming DataFrame that goes on to any Spark sink."""

    frame: DataFrame


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of a SELECT over ``table(…)``: a Spark batch DataFrame over what was stored when it was made."""

    frame: DataFrame


Result: TypeAlias = Message | Table | Plan | Started | Stream | Batch
