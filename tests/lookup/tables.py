"""Helpers of the lookup tests: keys and rows as tables, and a table that fails on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from watersmeet.lookup.source import UnavailableError

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def keys(*values: Any, name: str = "id", type: pa.DataType | None = None) -> pa.Table:
    return pa.table({name: pa.array(values, type or pa.int64())})


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order of their own."""
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


class FakeTable:
    """Rows by key, the keys that were asked for, and how many of the next queries fail."""

    name = "fake"
    schema = SCHEMA

    def __init__(self, *content: tuple[int, str], max_keys: int | None = None) -> None:
        self.content: list[tuple[int, str]] = list(content)
        self.asked: list[list[int]] = []
        self.failures = 0
        self.max_keys = max_keys

    def check(self) -> None:
        pass

    def fetch(self, keys: pa.Table) -> pa.Table:
        wanted: Sequence[int] = keys["id"].to_pylist()
        self.asked.append(sorted(wanted))
        if self.failures:
            self.failures -= 1
            raise UnavailableError("down")
        found = [row for row in self.content if row[0] in wanted]
        return pa.table([[row[0] for row in found], [row[1] for row in found]], schema=SCHEMA)


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time
