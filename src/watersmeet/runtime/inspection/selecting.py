"""SELECTs over ``state('query')``, carried out without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.inspection.database import check_relation, plain_rows, state_database
from watersmeet.runtime.inspection.places import checkpoint_of
from watersmeet.runtime.inspection.stored_query import consistently
from watersmeet.sql.state_queries import duckdb_text
from watersmeet.sql.statements import StateQuery


@dataclass(slots=True)
class StateRows:
    """The results of a SELECT over ``state(…)``: the names of their columns, and their rows, which come once."""

    columns: list[str]
    batches: Iterator[pa.RecordBatch]

    def rows(self) -> Iterator[tuple[object, ...]]:
        """All rows."""
        for batch in self.batches:
            yield from plain_rows(batch)


def select_state(query: StateQuery, folder: str) -> StateRows:
    """Carry out a query over the state of queries whose checkpoints are in ``folder``.

    Raises ``CheckpointError`` for a query that is not there, and for damage; ``ConfigError``, ``SqlSyntaxError`` and
    ``BindError`` for what is wrong with the query.
    """
    with ExitStack() as stack:
        database = stack.enter_context(state_database())
        wanted: dict[str, set[str]] = defaultdict(set)
        for each in query.relations:
            try:
                check_relation(each.relation)
                place = checkpoint_of(each.query, folder)
            except WatersmeetError as error:
                error.position = each.position
                raise
            wanted[place].add(each.relation)
        for place, relations in wanted.items():
            name = place.rpartition("/")[2]
            consistently(place, partial(database.add, name, relations=sorted(relations)))
        database.lock()
        columns, batches = database.select(duckdb_text(query, database.names))
        return StateRows(columns, _until_read(stack.pop_all(), batches))


def _until_read(stack: ExitStack, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with stack:
        yield from batches
