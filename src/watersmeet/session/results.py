"""The results of statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import DataFrame

from watersmeet.runtime.inspection.selecting import StateRows
from watersmeet.runtime.query import RunningQuery


@dataclass(frozen=True, slots=True)
class Message:
    """One sentence about a statement that was executed."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to print: SHOW, DESCRIBE."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The text of EXPLAIN."""

    text: str


@dataclass(frozen=True, slots=True)
class Started:
    """A query that was started."""

    query: RunningQuery


@dataclass(frozen=True, slots=True)
class Stream:
    """The result of a SELECT: a Spark streaming DataFrame, for any Spark sink."""

    frame: DataFrame


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of a SELECT over ``table(…)``: a Spark batch DataFrame over the rows stored when it was created."""

    frame: DataFrame


Result: TypeAlias = Message | Table | Plan | Started | Stream | Batch | StateRows
