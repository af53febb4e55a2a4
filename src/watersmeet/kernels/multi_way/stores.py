"""Where the rows of a join's inputs are stored: each in a store of its own, or in one that several joins read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import quote


@dataclass(frozen=True, slots=True)
class Store:
    """The ``relation`` that stores an input's rows, and how to read them.

    ``names`` pairs each column of the input, ``$t`` aside, with its name in the store.
    ``passes`` is a column of the store: only rows for which it is true are the input's (None: all of them).
    """

    relation: str
    names: tuple[tuple[str, str], ...]
    passes: str | None = None

    def read(self, rows: pa.Table) -> pa.Table:
        """Return those of the store's new rows that are the input's, under its names."""
        if self.passes is not None:
            rows = rows.filter(rows[self.passes])
        stored = [stored for _, stored in self.names]
        return rows.select([*stored, TIME]).rename_columns([*(own for own, _ in self.names), TIME])

    def read_sql(self, rows: str | None) -> str | None:
        """Return the same for stored rows, as SQL; None if there are none."""
        if rows is None:
            return None
        columns = [f"{quote(stored)} AS {quote(own)}" for own, stored in self.names]
        where = "" if self.passes is None else f" WHERE {quote(self.passes)}"
        return f"(SELECT {', '.join([*columns, quote(TIME)])} FROM {rows}{where})"

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the store's names of some columns."""
        names = dict(self.names)
        return [names[column] for column in columns]


def relation(number: int) -> str:
    """Return the name of a store's relation, which stored state knows: as a rule there is one for each input."""
    return f"input_{number}"
