"""Lookup joins: each row asks an external table for what it holds now."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.kernels.api import JoinKind, Side
from watersmeet.kernels.lookup import LookupJoin
from watersmeet.lookup.retry import OnError
from watersmeet.lookup.source import UnavailableError
from watersmeet.lookup.tables import OpenTable, table_options
from watersmeet.plan.explain_phrases import plain_condition, plain_name
from watersmeet.plan.external_tables import left_changes
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.settings.secrets import masked

_ON_ERROR = {
    OnError.FAIL: "the query stops (lookup_on_error = 'fail')",
    OnError.NULL: "keys count as not found (lookup_on_error = 'null')",
    OnError.RETRY: "it keeps trying (lookup_on_error = 'retry')",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOperator(PhysicalOperator):
    """Has no state; results are never revised, and no row is late."""

    kernel: LookupJoin
    table: Input

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    @property
    def added_types(self) -> Mapping[str, pa.DataType]:
        """The columns that were looked up."""
        return self.kernel.looked_up

    @property
    def passes_any_time(self) -> bool:
        """Always."""
        return True

    def for_this_run(self) -> LookupJoin:
        """With a cache of its own: after a restart it is empty."""
        return replace(self.kernel, cache=uuid.uuid4().hex)

    def check(self) -> None:
        """Raise ``ConnectorError``, with its position, where the table is not what was declared.

        A table that cannot be reached at the moment is no error: the query will ask again, as the table's options say.
        Nor is a secret that only the workers have.
        """
        try:
            self.kernel.source.check()
        except (UnavailableError, ConfigError):
            return
        except ConnectorError as error:
            error.position = self.table.position
            raise

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """The table, keys, what is asked for, cache and time-outs."""
        kernel, table = self.kernel, self.table
        options = table_options(table.stream)
        yield f"{self.name}: {'left' if kernel.outer else 'inner'} lookup, at once and never revised, by key hash"
        yield f"  table {table.alias} ({table.stream.name}, {table.stream.connector}): {_written(table)}"
        for key in kernel.keys:
            yield f"  key {plain_name(key.left)} = {plain_name(key.right)}; NULL is not asked for"
        if kernel.residual is not None:
            yield f"  tested on each row found: {plain_condition(kernel.residual)}"
        yield f"  asks for {', '.join(map(plain_name, kernel.names))}; one query for all keys of a batch"
        kept = f"up to {options.lookup_cache_rows:,} rows of a worker process, {options.lookup_cache_ttl:g} s"
        yield f"  cache: {kept if options.lookup_cache_rows else 'none'}"
        yield (
            f"  time-out {options.lookup_timeout:g} s; {options.lookup_max_retries} retries, then "
            f"{_ON_ERROR[kernel.retry.on_error]}"
        )
        yield "  state: none"


def plan_lookup(context: JoinContext, table: Input, feed: Feed, open_table: OpenTable) -> LookupOperator:
    """The operator of a lookup; it asks the table only for the columns that are needed.

    Raises ``UnsupportedError`` where the left side is a changelog.
    """
    if feed.changelog:
        raise left_changes(context.join, table)
    left, right = context.side_columns(Side.LEFT, feed), context.side_columns(Side.RIGHT, None)
    options = table_options(table.stream)
    names = tuple(dict.fromkeys((*right.condition, *right.output)))
    kernel = LookupJoin(
        left=left,
        right=right,
        keys=context.terms.keys,
        names=names,
        source=open_table(table.stream, [table.declared(name) for name in names]),
        outer=context.join.kind is JoinKind.LEFT,
        residual=context.residual_sql(),
        retry=options.retry_policy,
        cache_rows=options.lookup_cache_rows,
        cache_ttl=options.lookup_cache_ttl,
    )
    return LookupOperator(
        name=context.name,
        kernel=kernel,
        feeds=(feed,),
        routed_by=(context.terms.routes[0],),
        output=(*left.output, *right.output),
        single_bucket=context.single_bucket,
        table=table,
    )


def _written(table: Input) -> str:
    """The options that say where the table is, as written; secrets stay references."""
    given = {name: value for name, value in table.stream.options.items() if not name.startswith("lookup_")}
    return ", ".join(f"{name} = '{value}'" for name, value in masked(given).items())
