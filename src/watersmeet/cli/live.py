"""The current rows of a running query: a bounded multiset to which its changes are applied, and how to display it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from math import isnan, nan
from typing import TYPE_CHECKING, TypeAlias

from watersmeet.columns import TP_DELTA

if TYPE_CHECKING:
    from sqlglot import exp

    from watersmeet.sql.statements import Query

MAX_KEPT = 100_000

#: A row's values in a hashable form.
Cells: TypeAlias = tuple[object, ...]


class View(Enum):
    """How a running SELECT displays its rows."""

    AUTO = "auto"  # the table if the query aggregates, else changes
    CHANGES = "changes"  # each change as it is emitted
    TABLE = "table"  # the current rows


class Outcome(Enum):
    """The effect of a batch of changes on the current rows."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    FULL = "full"  # too many rows: all were dropped


@dataclass(frozen=True, slots=True)
class Shown:
    """Some of the current rows, each with its weight: negative ones first, then those that changed last.

    ``all`` is the number of all current rows.  ``negative`` counts rows retracted more often than inserted, which is
    a defect.
    """

    rows: tuple[tuple[int, Cells], ...] = ()
    all: int = 0
    negative: int = 0

    def sorted(self, most: int | None) -> list[tuple[int, Cells]]:
        """Return the first ``most`` rows (None: all), sorted by their values."""
        return sorted(self.rows[:most], key=lambda row: _order(row[1]))


class CurrentRows:
    """The rows after all changes so far: at most ``most`` distinct ones."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._weights: dict[Cells, int] = {}  # in the order of their last changes
        self._negative: dict[Cells, None] = {}

    def apply(self, changes: Sequence[tuple[int, tuple[object, ...]]]) -> Outcome:
        """Apply a batch of (weight, row), in any order.

        If there are too many distinct rows, drop all of them and return ``FULL``.
        """
        net: dict[Cells, int] = {}
        for weight, row in changes:
            cells = tuple(map(hashable, row))
            net[cells] = net.get(cells, 0) + weight
        outcome = Outcome.UNCHANGED
        for cells, weight in net.items():
            if weight != 0:
                self._set(cells, self._weights.pop(cells, 0) + weight)
                outcome = Outcome.CHANGED
        if len(self._weights) <= self._most:
            return outcome
        self._weights.clear()
        self._negative.clear()
        return Outcome.FULL

    def shown(self, most: int) -> Shown:
        """Return at most ``most`` of the rows."""
        changed_last = (cells for cells in reversed(self._weights) if cells not in self._negative)
        chosen = islice(chain(self._negative, changed_last), most)
        rows = tuple((self._weights[cells], cells) for cells in chosen)
        return Shown(rows, len(self._weights), len(self._negative))

    def _set(self, cells: Cells, weight: int) -> None:
        self._negative.pop(cells, None)
        if weight != 0:
            self._weights[cells] = weight
        if weight < 0:
            self._negative[cells] = None


def hashable(value: object) -> object:
    """Return a value in a hashable form: NaN as one value; arrays, maps and structs as text."""
    if isinstance(value, list | dict):
        return str(value)
    return nan if _is_nan(value) else value


def _order(cells: Cells) -> tuple[tuple[int, object], ...]:
    """Sort by the columns from left to right; NaN after other numbers, NULL last."""
    return tuple((2, 0) if cell is None else (1, 0) if _is_nan(cell) else (0, cell) for cell in cells)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


# -- which view a query gets -----------------------------------------------------------------------------------------


def view_of(query: Query, asked: View) -> View:
    """Return the view of a query, ``CHANGES`` or ``TABLE``.

    ``AUTO`` is the table for queries with aggregates, unless they select ``_tp_delta``, which only changes have.
    """
    if asked is not View.AUTO:
        return asked
    return View.TABLE if _aggregates(query) and not _delta_columns(query) else View.CHANGES


def works_on_changes(query: Query) -> bool:
    """Return whether a query uses ``_tp_delta`` in an expression: its changes do not add up to a table then."""
    return any(not _is_selected(column, query) for column in _delta_columns(query))


def _aggregates(query: Query) -> bool:
    from sqlglot import exp

    return query.select.find(exp.AggFunc, exp.Group) is not None


def _delta_columns(query: Query) -> list[exp.Expr]:
    """Return the references to ``_tp_delta`` in the SELECT list and the conditions."""
    from sqlglot import exp

    return [column for column in query.select.find_all(exp.Column) if column.name.lower() == TP_DELTA]


def _is_selected(column: exp.Expr, query: Query) -> bool:
    """Return whether a reference is an item of the SELECT list, unchanged and under its own name."""
    from sqlglot import exp

    item = column.parent if isinstance(column.parent, exp.Alias) else column
    return item.parent is query.select and item.arg_key == "expressions" and item.alias_or_name.lower() == TP_DELTA
