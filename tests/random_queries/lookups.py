"""Lookups in tables that are files, and may change between steps: what they find is what the file holds at the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from tests.random_queries.conditions import rarely
from tests.random_queries.trees import Col, Stream, Tree
from watersmeet.kernels.lookup import LookupJoin
from watersmeet.lookup.tables import open_table
from watersmeet.plan.operators import lookup
from watersmeet.testing.harness import Harness

COLUMNS = {"id": "INT", "k": "STRING", "w": "INT"}
_SCHEMA = pa.schema([("id", pa.int32()), ("k", pa.string()), ("w", pa.int32())])
_TTL_SECONDS = 60

Row = tuple[int | None, str | None, int | None]


@dataclass(frozen=True)
class Table:
    """A table, and what it holds in each step; the last holds for all later ones."""

    name: str
    connector: str
    cached: int
    contents: tuple[tuple[Row, ...], ...]

    def sql(self, folder: Path) -> str:
        """CREATE TABLE, for a file in a folder."""
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        table = f", table = '{self.name}'" if self.connector == "duckdb" else ""
        return (
            f"CREATE TABLE {self.name} ({columns}) WITH (connector = '{self.connector}', path = '{self._path(folder)}'"
            f"{table}, lookup_cache_rows = {self.cached}, lookup_cache_ttl = '{_TTL_SECONDS} seconds');\n"
        )

    def at(self, step: int) -> tuple[Row, ...]:
        """The rows in a step; the first is 1."""
        return self.contents[min(step, len(self.contents)) - 1]

    def versions(self, steps: int) -> pa.Table:
        """All rows with their steps, for DuckDB."""
        rows = [(*row, step) for step in range(1, steps + 1) for row in self.at(step)]
        schema = _SCHEMA.append(pa.field("step", pa.int64()))
        return pa.table([[row[i] for row in rows] for i in range(len(schema))], schema=schema)

    def write(self, folder: Path, step: int) -> None:
        """Replace the file's content by that of a step."""
        rows = self.at(step)
        table = pa.table([[row[i] for row in rows] for i in range(len(_SCHEMA))], schema=_SCHEMA)
        if self.connector == "duckdb":
            with duckdb.connect(self._path(folder), config={"threads": 1}) as connection:
                connection.register("held", table)
                connection.execute(f"CREATE OR REPLACE TABLE {self.name} AS FROM held")
            return
        written = folder / f"{self.name}.tmp"
        pq.write_table(table, written)
        written.replace(self._path(folder))

    def _path(self, folder: Path) -> Path:
        return folder / f"{self.name}.{'duckdb' if self.connector == 'duckdb' else 'parquet'}"


class TableFiles:
    """The files of some tables, and the clock of lookups: when a table changes, what was cached has become too old."""

    def __init__(self, tables: Sequence[Table], folder: Path) -> None:
        self._tables = tables
        self._folder = folder
        self._now = 0.0
        for table in tables:
            table.write(folder, 1)

    def begin(self, step: int, harness: Harness) -> None:
        """Let the tables hold what they hold in a step."""
        for table in self._tables:
            if step > 1 and table.at(step) != table.at(step - 1):
                harness.fill(table.name, table.at(step))
                table.write(self._folder, step)
                self._now += _TTL_SECONDS

    @contextmanager
    def planned(self) -> Iterator[None]:
        """Let queries that are planned here look up in the files, and ask this clock."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Harness, "_open_table", lambda _, table, columns: open_table(table, columns))
            patch.setattr(lookup, "LookupJoin", partial(LookupJoin, clock=lambda: self._now))
            yield


@dataclass(frozen=True)
class Lookup(Tree):
    """``[LEFT] JOIN … FOR SYSTEM_TIME AS OF PROCTIME()``; of a stream's rows, in the step in which they come."""

    left: Tree
    table: Table
    outer: bool
    on: tuple[tuple[str, str], ...]
    residual: str = ""

    @property
    def children(self) -> Sequence[Tree]:
        return (self.left,)

    @property
    def items(self) -> list[tuple[Col, str]]:
        found = [(Col(f"l{each.name}"[:40], each.kind, each.role), f"l.{each.name}") for each in self.left.columns]
        taken = {column.name for column, _ in found}
        for name, kind in COLUMNS.items():
            own = next(each for each in (f"r{name}", f"rr{name}") if each not in taken)
            found.append((Col(own, kind), f"r.{name}"))
        return found

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(column for column, _ in self.items)

    def sql(self, *, duck: bool) -> str:
        items = ", ".join(f"{sql} AS {column.name}" for column, sql in self.items)
        terms = [*(f"l.{one} = r.{other}" for one, other in self.on), *([self.residual] if self.residual else [])]
        join = f"{'LEFT ' if self.outer else ''}JOIN {self.table.name}"
        if not duck:
            clause = f"{join} FOR SYSTEM_TIME AS OF PROCTIME() r ON {' AND '.join(terms)}"
            return f"SELECT {items} FROM {self.left.source(duck=False)} l {clause}"
        is_stream = isinstance(self.left, Stream)
        left = f"(SELECT * FROM {self.left.name})" if isinstance(self.left, Stream) else self.left.source(duck=True)
        terms.append(f"r.step = {'l.step' if is_stream else 1}")
        return f"SELECT {items} FROM {left} l {join} r ON {' AND '.join(terms)}"


@st.composite
def tables(draw: st.DrawFn, versions: Sequence[int]) -> Table:
    """A table whose content changes as often as one of ``versions`` says, less one."""
    row = st.tuples(
        st.sampled_from([1, 1, 2, 3, None]), st.sampled_from(["x", "y", "", None]), st.sampled_from([0, 1, 2, 4, None])
    )
    contents = [
        tuple(draw(st.lists(row, min_size=1, max_size=6))) for _ in range(draw(st.sampled_from(list(versions))))
    ]
    cached = draw(st.sampled_from([100_000, 2, 0]))
    return Table("t", draw(st.sampled_from(["files", "files", "duckdb"])), cached, tuple(contents))


@st.composite
def lookups(draw: st.DrawFn, left: Tree, table: Table) -> Tree:
    """A lookup by one column or two, perhaps with another condition; columns are those of streams."""
    pairs = [
        (each.name, other)
        for name, other in (("id", "id"), ("k", "k"), ("v", "w"))
        for each in left.columns
        if each.name.endswith(name)
    ]
    on = [draw(st.sampled_from(pairs))]
    if draw(rarely(0.3)):
        on.append(draw(st.sampled_from([pair for pair in pairs if pair not in on])))
    numbers = [each.name for each in left.columns if each.kind == "INT"]
    tests = ["r.w > 1", "r.w IS NULL", *(f"l.{name} <= r.w" for name in numbers[:4])]
    residual = draw(st.sampled_from(tests)) if draw(rarely(0.3)) else ""
    return Lookup(left, table, draw(st.booleans()), tuple(on), residual)
