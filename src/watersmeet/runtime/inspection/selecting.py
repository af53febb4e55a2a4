"""SELECTs over ``state('query')``, carried out without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa

from watersmeet.arrow_rows import ArrowRows
from watersmeet.errors import WatersmeetError
from watersmeet.html import MOST_ROWS, error_part, page_part, table
from watersmeet.runtime.inspection.database import check_relation, plain_rows, state_database
from watersmeet.runtime.inspection.places import checkpoint_of
from watersmeet.runtime.inspection.stored_query import consistently
from watersmeet.sql.state_queries import duckdb_text
from watersmeet.sql.statements import StateQuery


@dataclass(slots=True)
class StateRows(ArrowRows):
    """The results of a SELECT over ``state(…)``: their columns, and their rows, which ``rows()`` gives once."""

    schema: pa.Schema
    """The columns."""
    batches: Iterator[pa.RecordBatch]
    """What has not been read yet."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def rows(self) -> Iterator[tuple[object, ...]]:
        """All rows."""
        for batch in self.batches:
            yield from plain_rows(batch)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table; they can be taken again."""
        found = pa.Table.from_batches(self.batches, self.schema)
        self.batches = iter(found.to_batches())
        return found

    def _repr_html_(self) -> str:
        taken: list[pa.RecordBatch] = []
        try:
            for batch in self.batches:
                taken.append(batch)
                if sum(each.num_rows for each in taken) > MOST_ROWS:
                    break
        except WatersmeetError as error:
            return error_part(error)
        self.batches = chain(taken, self.batches)  # what is shown can still be read
        return page_part(table(self.columns, chain.from_iterable(map(plain_rows, taken))))


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
        schema, batches = database.select(duckdb_text(query, database.names))
        return StateRows(schema, _until_read(stack.pop_all(), batches))


def _until_read(stack: ExitStack, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with stack:
        yield from batches
