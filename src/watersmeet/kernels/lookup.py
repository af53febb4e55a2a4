"""The lookup join: each left row with the rows that an outside table has of its key when the row comes.

Matches      keys equal, and the residual, which is part of the match; a key may have several rows
NULL keys    match nothing, and are not asked for
Late rows    none: the left row's time does not matter, it is only handed on
Final        at once, never revised, whatever becomes of the table later.  A replay of a batch asks again, and may find
             other rows
State        none.  What was found is kept in the worker process (lookup/cache.py) and gone with it
Table down   lookup/retry.py: the step fails, or waits, or takes the keys as not found and counts their rows

Left rows are never retracted: a fresh lookup could not tell what was emitted for them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.match import Key, SideColumns
from watersmeet.lookup.cache import Clock, LookupCache, cache_of
from watersmeet.lookup.key_batch import Answer, look_up
from watersmeet.lookup.retry import RetryPolicy
from watersmeet.lookup.source import LookupSource

#: The counters of the kernel: distinct keys found and not found in the cache, queries with all retries, rows fetched,
#: and left rows whose key could not be looked up.
COUNTERS = ("lookup_hits", "lookup_misses", "lookup_queries", "lookup_fetched", "lookup_failed")


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """The kernel; its one input is the left stream.

    ``names`` are what results and the residual call the columns of the source, in its order.  The residual is DuckDB
    SQL over ``l`` and ``r``; with ``outer`` left rows without a match come out padded.  The output has the columns of
    ``left.output`` and then of ``right.output``.  How the table is reached is no part of the plan's identity: nothing
    stored depends on it.
    """

    left: SideColumns
    right: SideColumns
    keys: tuple[Key, ...]
    names: tuple[str, ...]
    source: LookupSource = field(repr=False)
    outer: bool = False
    residual: str | None = None
    retry: RetryPolicy = field(default=RetryPolicy(), repr=False)
    cache_rows: int = field(default=100_000, repr=False)
    cache_ttl: float = field(default=60.0, repr=False)
    clock: Clock = field(default=time.monotonic, repr=False)
    #: Made anew for each run of a query: runs do not share what they found.
    cache: str = field(default_factory=lambda: uuid.uuid4().hex, repr=False, compare=False)

    @property
    def looked_up(self) -> dict[str, pa.DataType]:
        """The columns that come from the table, and their types."""
        return dict(zip(self.names, self.source.schema.types, strict=True))

    @property
    def partition_width(self) -> int | None:
        """No rows are stored."""
        return None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """No rows are stored."""
        return {}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Look up the keys of the new rows, and give the rows joined."""
        left = state.show(inputs[0])
        keys = self._keys(state, left, inputs[0].schema)
        answer = look_up(keys, self.source, self.retry, self._cache(), self.clock)
        found = state.show(answer.rows.rename_columns(list(self.names)))
        changes = state.connection.sql(self._join_sql(left, found)).to_arrow_table()
        counters = (answer.hits, answer.misses, answer.queries, answer.fetched, self._failed(state, left, answer))
        return StepResult(changes=changes, counters=dict(zip(COUNTERS, counters, strict=True)))

    def _asked(self) -> dict[str, str]:
        """The left column of each key, by the source's column: one of them, where several are compared with it."""
        own = dict(zip(self.names, self.source.schema.names, strict=True))
        return {own[key.right]: key.left for key in reversed(self.keys)}

    def _keys(self, state: StateView, left: str, schema: pa.Schema) -> pa.Table:
        asked = self._asked()
        columns = ", ".join(f"{quote(left_name)} AS {quote(name)}" for name, left_name in asked.items())
        known = " AND ".join(f"{quote(left_name)} IS NOT NULL" for left_name in asked.values())
        keys = state.connection.sql(f"SELECT DISTINCT {columns} FROM {left} WHERE {known}").to_arrow_table()
        return keys.cast(pa.schema([pa.field(name, schema.field(left_name).type) for name, left_name in asked.items()]))

    def _cache(self) -> LookupCache:
        return cache_of(
            self.cache,
            lambda: LookupCache(self.source.schema, self.cache_rows, self.cache_ttl, self.clock),
            self.clock,
        )

    def _join_sql(self, left: str, found: str) -> str:
        terms = [f"l.{quote(key.left)} = r.{quote(key.right)}" for key in self.keys]
        if self.residual is not None:
            terms.append(f"({self.residual})")
        columns = [f"l.{quote(TIME if name == self.left.time else name)} AS {quote(name)}" for name in self.left.output]
        columns += [f"r.{quote(name)}" for name in self.right.output]
        kind = "LEFT" if self.outer else "INNER"
        return f"SELECT {', '.join(columns)} FROM {left} AS l {kind} JOIN {found} AS r ON {' AND '.join(terms)}"

    def _failed(self, state: StateView, left: str, answer: Answer) -> int:
        """How many left rows have a key that could not be looked up."""
        if answer.failed.num_rows == 0:
            return 0
        same = " AND ".join(f"l.{quote(left_name)} = f.{quote(name)}" for name, left_name in self._asked().items())
        count = f"SELECT count(*) FROM {left} AS l JOIN {state.show(answer.failed)} AS f ON {same}"
        ((rows,),) = state.connection.execute(count).fetchall()
        return int(rows)
