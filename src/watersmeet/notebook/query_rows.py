"""The rows of a SELECT that runs: those that hold now, as the query's changes leave them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from watersmeet.arrow_rows import ArrowRows
from watersmeet.cli.live import MAX_KEPT, CurrentRows, Outcome, Shown, hashable
from watersmeet.connectors.console import Change
from watersmeet.errors import LimitError
from watersmeet.html import page_part, plain, table


class QueryRows(ArrowRows):
    """Takes a query's changes, in a thread of Spark's, and shows its rows, sorted.

    With ``as_changes`` each change is a row of its own, in the order of their arrival, which begins with its weight.
    At most ``most`` distinct rows, or changes, are kept.
    """

    def __init__(self, *, as_changes: bool = False, most: int = MAX_KEPT) -> None:
        self.columns: tuple[str, ...] = ()
        self._as_changes = as_changes
        self._most = most
        self._lock = threading.Lock()
        self._rows = CurrentRows(most)
        self._changes: list[tuple[object, ...]] = []
        self._is_full = False

    def __call__(self, names: Sequence[str], changes: Sequence[Change], batch: int) -> None:
        """Take the changes of a batch."""
        with self._lock:
            self.columns = ("change", *names) if self._as_changes else tuple(names)
            if self._is_full:
                return
            if self._as_changes:
                self._changes += ((weight, *map(hashable, row)) for weight, row in changes)
                self._is_full = len(self._changes) > self._most
            else:
                self._is_full = self._rows.apply(changes) is Outcome.FULL

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, whose types follow from the values; nested values are texts.

        Raises ``LimitError`` if there were too many to keep.
        """
        if self._is_full:
            raise self._full()
        rows = list(self._repeated(self._held()))
        columns = [pa.array([row[number] for row in rows]) for number in range(len(self.columns))]
        return pa.Table.from_arrays(columns, list(self.columns))

    def table(self) -> str:
        """Return the first rows as an HTML table."""
        if self._is_full:
            return plain(str(self._full()), "error")
        held = self._held()
        note = f"defect: rows retracted more often than inserted: {held.negative:,}; please report this query"
        return table(self.columns, self._repeated(held)) + (plain(note, "error") if held.negative else "")

    def _repr_html_(self) -> str:
        return page_part(self.table())

    def _held(self) -> Shown:
        with self._lock:
            if self._as_changes:
                return Shown(tuple((1, change) for change in self._changes), len(self._changes))
            return self._rows.shown(self._most)

    def _repeated(self, held: Shown) -> Iterator[tuple[object, ...]]:
        """Each row as often as it holds."""
        for weight, cells in held.rows if self._as_changes else held.sorted(None):
            yield from (cells for _ in range(weight))

    def _full(self) -> LimitError:
        return LimitError(
            f"the query has more than {self._most:,} rows, too many to keep in a notebook",
            hint="INSERT INTO a stream, or aggregate",
        )
