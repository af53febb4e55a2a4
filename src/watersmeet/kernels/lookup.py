"""The lookup join: each left row with the rows that an external table has for its key when the row arrives.

Matches      keys equal and residual true; a key may have several rows, and all match
NULL keys    match nothing and are not queried
Late rows    none: the left row's time plays no part
Final        at once, never revised, whatever happens to the table later.  A replay of a batch queries again and may
             find other rows
State        none.  The worker process caches what it found (lookup/cache.py)
Table down   the step fails, waits, or treats the keys as not found and counts their rows (lookup/retry.py)

Left rows must be append-only: a new lookup could not tell which results to retract.

Example: (order 1, customer 7) arrives while the table has (7, 'ada') and emits (1, 'ada').  A later update to
(7, 'eve') changes nothing that was emitted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult, made, quote
from watersmeet.kernels.homes import Homes
from watersmeet.kernels.match import Key, SideColumns
from watersmeet.lookup.cache import Clock, LookupCache, cache_of
from watersmeet.lookup.key_batch import Answer, look_up
from watersmeet.lookup.retry import RetryPolicy
from watersmeet.lookup.source import LookupSource

#: The kernel's counters: distinct keys found in the cache and not found there, queries including retries, rows fetched,
#: and left rows whose key could not be looked up.
COUNTERS = ("lookup_hits", "lookup_misses", "lookup_queries", "lookup_fetched", "lookup_failed")


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """The kernel; its one input is the left stream.

    ``names`` are the names of the source's columns in results and in the residual, in the source's order.  The residual
    is DuckDB SQL over ``l`` and ``r``.  With ``outer``, left rows without a match are emitted padded.  Results have the
    columns of ``left.output``, then of ``right.output``.  Fields without ``repr`` say how to reach the table.  They are
    not part of the plan's fingerprint: nothing stored depends on them.
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
    #: A new one for each run of a query: runs share no cache.
    cache: str = field(default_factory=lambda: uuid.uuid4().hex, repr=False, compare=False)

    @property
    def looked_up(self) -> dict[str, pa.DataType]:
        """The names and types of the table's columns."""
        return dict(zip(self.names, self.source.schema.types, strict=True))

    @property
    def partition_width(self) -> int | None:
        """None: no rows are stored."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Nothing is stored."""
        return {}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return nothing: no rows are stored."""
        return {}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Look up the keys of the new rows, and emit the joined rows."""
        left = state.register(inputs[0])
        keys = self._keys(state, left, inputs[0].schema)
        answer = look_up(keys, self.source, self.retry, self._cache(), self.clock)
        found = state.register(answer.rows.rename_columns(list(self.names)))
        changes = made(state, self._join_sql(left, found), inputs[0].num_rows)
        counters = (answer.hits, answer.misses, answer.queries, answer.fetched, self._failed(state, left, answer))
        return StepResult(changes=changes, counters=dict(zip(COUNTERS, counters, strict=True)))

    def _queried(self) -> dict[str, str]:
        """Return the left column of each key by the source's column; one of them if several are compared with it."""
        own = dict(zip(self.names, self.source.schema.names, strict=True))
        return {own[key.right]: key.left for key in reversed(self.keys)}

    def _keys(self, state: StateView, left: str, schema: pa.Schema) -> pa.Table:
        queried = self._queried()
        columns = ", ".join(f"{quote(left_name)} AS {quote(name)}" for name, left_name in queried.items())
        known = " AND ".join(f"{quote(left_name)} IS NOT NULL" for left_name in queried.values())
        keys = state.query(f"SELECT DISTINCT {columns} FROM {left} WHERE {known}")
        types = [pa.field(name, schema.field(left_name).type) for name, left_name in queried.items()]
        return keys.cast(pa.schema(types))

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
        """Return how many left rows have a key that could not be looked up."""
        if answer.failed.num_rows == 0:
            return 0
        same = " AND ".join(f"l.{quote(left_name)} = f.{quote(name)}" for name, left_name in self._queried().items())
        count = f"SELECT count(*) FROM {left} AS l JOIN {state.register(answer.failed)} AS f ON {same}"
        ((rows,),) = state.connection.execute(count).fetchall()
        return int(rows)
