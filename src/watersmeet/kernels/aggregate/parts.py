"""What an aggregate stores for each group: running totals, and bags of values.

All SQL is DuckDB's.  SQL of totals and of a bag's columns reads the operator's input rows.  SQL of a bag's figures
reads the bag, with the columns ``v0``, ``v1`` ... and ``w``, the number of times that the values occur.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.kernels.api import quote


@dataclass(frozen=True, slots=True)
class Total:
    """An exact sum, from which the value of a retracted row can be subtracted; ``type`` is the type of the sum."""

    name: str
    sql: str
    type: str


@dataclass(frozen=True, slots=True)
class Bag:
    """The current values of a group: tuples of ``columns``, without those whose last element is NULL.

    ``figures`` are computed from the whole bag whenever it changes.  ``centre`` is a figure that others need first:
    each row has it as ``mean``.  If it is ``ranked``, each row has the number of values ``n``, and of those that are no
    greater, ``upto``.  If rows are append-only and only the first values in some orders count (``ends``, in
    the syntax of ORDER BY), no others are stored.

    With an ``amount`` (SQL of an integer), ``w`` is the sum of amounts over equal values, which may be negative.
    """

    name: str
    columns: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    centre: str | None = None
    ends: tuple[str, ...] = ()
    amount: str | None = None
    # not in a plan's fingerprint: what is stored does not depend on it
    ranked: bool = field(default=False, repr=False)

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the columns of a tuple."""
        return tuple(f"v{number}" for number in range(len(self.columns)))


@dataclass(slots=True)
class Parts:
    """Collects the totals and bags that functions need, each once, and names their results."""

    append_only: bool
    _totals: dict[tuple[str, str], str] = field(default_factory=dict)
    _bags: dict[tuple[tuple[str, ...], str | None], _Figures] = field(default_factory=dict)

    def total(self, sql: str, type: str) -> str:
        """Return SQL for a running total of ``sql``; rows for which it is NULL add nothing."""
        return quote(self._totals.setdefault((sql, type), f"$total{len(self._totals)}"))

    def figure(
        self,
        columns: tuple[str, ...],
        sql: str,
        *,
        centre: str | None = None,
        ranked: bool = False,
        end: str | None = None,
        amount: str | None = None,
    ) -> str:
        """Return SQL for a figure of a bag; ``end`` is the order in which it needs only the first value."""
        figures = self._bags.setdefault((columns, amount), _Figures(len(self._bags)))
        figures.centre = figures.centre or centre
        figures.ranked = figures.ranked or ranked
        figures.ends.append(end)
        return quote(figures.names.setdefault(sql, f"$figure{figures.number}_{len(figures.names)}"))

    @property
    def totals(self) -> tuple[Total, ...]:
        """All running totals."""
        return tuple(Total(name, sql, type) for (sql, type), name in self._totals.items())

    @property
    def bags(self) -> tuple[Bag, ...]:
        """All bags."""
        return tuple(
            Bag(
                name=f"values_{figures.number}",
                columns=columns,
                figures=tuple((name, sql) for sql, name in figures.names.items()),
                centre=figures.centre,
                ranked=figures.ranked,
                ends=figures.only_ends if self.append_only else (),
                amount=amount,
            )
            for (columns, amount), figures in self._bags.items()
        )


@dataclass(slots=True)
class _Figures:
    """The figures of one bag."""

    number: int
    names: dict[str, str] = field(default_factory=dict)  # by SQL
    centre: str | None = None
    ranked: bool = False
    ends: list[str | None] = field(default_factory=list)

    @property
    def only_ends(self) -> tuple[str, ...]:
        """The orders whose first values are enough; none if some figure needs all values."""
        found = [end for end in self.ends if end is not None]
        return tuple(dict.fromkeys(found)) if len(found) == len(self.ends) else ()
