"""What a running query's changes add up to: its current rows, kept as a multiset with a bound; and how to show them."""

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

MOST_KEPT = 100_000

#: A row's values, made hashable: equal ones are one row.
Cells: TypeAlias = tuple[object, ...]


class View(Enum):
    """How a running SELECT shows its rows."""

    AUTO = "auto"  # the table where a query aggregates, else changes
    CHANGES = "changes"  # each change as it comes
    TABLE = "table"  # the rows that hold now


class Outcome(Enum):
    """What a batch of changes did to the rows that are kept."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    FULL = "full"  # there are too many: none is kept any more


@dataclass(frozen=True, slots=True)
class Shown:
    """Some of the current rows, each with its weight: negative ones, then those that changed last.  There are ``all``.

    ``negative`` counts rows that were taken back more often than they came: no query may bring that about.
    """

    rows: tuple[tuple[int, Cells], ...] = ()
    all: int = 0
    negative: int = 0

    def sorted(self, most: int | None) -> list[tuple[int, Cells]]:
        """The first of them (None: all), in the order of their values."""
        return sorted(self.rows[:most], key=lambda row: _order(row[1]))


class CurrentRows:
    """The rows that hold after all changes so far: at most ``most`` distinct ones."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._weights: dict[Cells, int] = {}  # in the order of their last changes
        self._negative: dict[Cells, None] = {}

    def apply(self, changes: Sequence[tuple[int, tuple[object, ...]]]) -> Outcome:
        """Add a batch of (weight, row); within a batch their order means nothing.

        With more distinct rows than may be kept all are dropped, and ``FULL`` comes back.
        """
        net: dict[Cells, int] = {}
        for weight, row in changes:
            cells = tuple(map(_cell, row))
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
        """At most so many of the rows."""
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


def _cell(value: object) -> object:
    """A value as part of a key: NaN is one value here, and arrays, maps and structs are their text."""
    if isinstance(value, list | dict):
        return str(value)
    return nan if _is_nan(value) else value


def _order(cells: Cells) -> tuple[tuple[int, object], ...]:
    """By the columns from left to right; NaN after other numbers, NULL last."""
    return tuple((2, 0) if cell is None else (1, 0) if _is_nan(cell) else (0, cell) for cell in cells)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


# -- which view a query gets -----------------------------------------------------------------------------------------


def view_of(query: Query, asked: View) -> View:
    """The view of a query where ``asked`` is wanted: ``CHANGES`` or ``TABLE``.

    The table is there for queries with aggregates, whose rows mean something only as they are now; but who selects
    ``_tp_delta`` wants to see changes.
    """
    if asked is not View.AUTO:
        return asked
    return View.TABLE if _aggregates(query) and not _delta_columns(query) else View.CHANGES


def works_on_changes(query: Query) -> bool:
    """Whether a query tests ``_tp_delta`` or computes with it: its results do not add up to a table then."""
    return any(not _is_selected(column, query) for column in _delta_columns(query))


def _aggregates(query: Query) -> bool:
    from sqlglot import exp

    return query.select.find(exp.AggFunc, exp.Group) is not None


def _delta_columns(query: Query) -> list[exp.Expr]:
    """Where the SELECT list and the conditions name ``_tp_delta``."""
    from sqlglot import exp

    return [column for column in query.select.find_all(exp.Column) if column.name.lower() == TP_DELTA]


def _is_selected(column: exp.Expr, query: Query) -> bool:
    """Whether it stands in the SELECT list as it is, under its own name."""
    from sqlglot import exp

    item = column.parent if isinstance(column.parent, exp.Alias) else column
    return item.parent is query.select and item.arg_key == "expressions" and item.alias_or_name.lower() == TP_DELTA
