"""External tables can only be looked up in: nothing reports when a row of them changes."""

from __future__ import annotations

from watersmeet.errors import UnsupportedError
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import joins_of


def check_external_tables(query: LogicalQuery) -> LogicalQuery:
    """The query itself; ``UnsupportedError`` where an external table is read as a stream."""
    looked_up = {join.asof.right for join in joins_of(query.root) if join.asof is not None}
    for input in query.inputs:
        if input.stream.outside and input.index not in looked_up:
            raise UnsupportedError(
                f"{input.stream.name} is an external table: a stream can only look up what it holds now",
                hint=f"stream JOIN {input.stream.name} FOR SYSTEM_TIME AS OF PROCTIME() {input.alias} ON …",
                position=input.position,
            )
    return query
