"""What an aggregate keeps of the rows of a group: running totals, and bags of values.

SQL here is DuckDB's.  That of totals and bags' columns reads the operator's input rows; that of figures reads the bag,
with columns ``v0``, ``v1`` … and ``w``, how often the values are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet.kernels.api import quote


@dataclass(frozen=True, slots=True)
class Total:
    """A sum that is exact, so that what a row added can be taken off again; ``type`` is that of the sum."""

    name: str
    sql: str
    type: str


@dataclass(frozen=True, slots=True)
class Bag:
    """The values (tuples of what ``columns`` give) that are there now; those whose last one is NULL are left out.

    ``figures`` are computed from them anew whenever one comes or goes; ``centre`` is one that others need first: it
    stands in each row as ``mean``.  Where rows only ever come, and nothing but the first in some orders counts
    (``ends``, as ORDER BY has them), no others are kept.

    With an ``amount`` (SQL of a whole number) ``w`` is the sum of these over equal values, which may be below zero.
    """

    name: str
    columns: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    centre: str | None = None
    ends: tuple[str, ...] = ()
    amount: str | None = None

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the values' columns."""
        return tuple(f"v{number}" for number in range(len(self.columns)))


@dataclass(slots=True)
class Parts:
    """Collects what some functions need, each total and bag once; gives the names of their results."""

    append_only: bool
    _totals: dict[tuple[str, str], str] = field(default_factory=dict)
    _bags: dict[tuple[tuple[str, ...], str | None], _Figures] = field(default_factory=dict)

    def total(self, sql: str, type: str) -> str:
        """A running total of what ``sql`` gives, as SQL; rows for which that is NULL add nothing."""
        return quote(self._totals.setdefault((sql, type), f"$total{len(self._totals)}"))

    def figure(
        self,
        columns: tuple[str, ...],
        sql: str,
        *,
        centre: str | None = None,
        end: str | None = None,
        amount: str | None = None,
    ) -> str:
        """A figure of a bag of values, as SQL; ``end`` is the order of which it needs only the first value."""
        figures = self._bags.setdefault((columns, amount), _Figures(len(self._bags)))
        figures.centre = figures.centre or centre
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
                ends=figures.only_ends if self.append_only else (),
                amount=amount,
            )
            for (columns, amount), figures in self._bags.items()
        )


@dataclass(slots=True)
class _Figures:
    """What is asked of one bag."""

    number: int
    names: dict[str, str] = field(default_factory=dict)  # by SQL
    centre: str | None = None
    ends: list[str | None] = field(default_factory=list)

    @property
    def only_ends(self) -> tuple[str, ...]:
        """The orders of which the first values are enough; none where some figure needs them all."""
        found = [end for end in self.ends if end is not None]
        return tuple(dict.fromkeys(found)) if len(found) == len(self.ends) else ()
