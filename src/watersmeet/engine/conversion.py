"""Stored rows of a query that was changed, as its new version stores them.

Rows that the old version had closed leave on the way.  They may still stand in a segment with others, and a longer
window would take them for rows that are open: what was padded would be padded once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a relation that came with its rows: their names before, and what they are from now on."""

    before: tuple[str, ...]
    after: tuple[pa.Field, ...]

    def of(self, rows: pa.Table) -> pa.Table:
        """Return rows with these columns; those that are new are NULL, and hidden ones stay."""
        given = {each.name: each for each in rows.schema}
        fields = [*self.after, *(each for name, each in given.items() if name not in self.before)]
        columns = [
            rows[each.name].cast(each.type) if each.name in given else pa.nulls(rows.num_rows, each.type)
            for each in fields
        ]
        return pa.table(columns, schema=pa.schema(fields))


@dataclass(frozen=True, slots=True)
class Conversion:
    """What becomes of the rows of an operator: ``columns`` by relation, and the width of its time partitions."""

    columns: Mapping[str, Columns] = field(default_factory=dict)
    width: int | None = None

    def of(self, relation: str, rows: pa.Table, open_from: int) -> pa.Table:
        """Return the rows of a relation that are open, which they are from a time on."""
        found = rows.filter(pc.greater_equal(rows[TIME], open_from))
        known = self.columns.get(relation)
        return found if known is None else known.of(found)
