"""The columns of an alias in FROM."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp


@dataclass(slots=True)
class Relation:
    """The columns of an alias; names are case-insensitive. A star does not expand to ``hidden`` columns.

    ``fields`` are those of columns that are structs, by column and field in lower case, where they are columns too.
    What ``is_apart`` is found by its alias alone, which the text cannot name.
    """

    alias: str
    columns: dict[str, exp.Expr]
    hidden: dict[str, exp.Expr] = field(default_factory=dict)
    fields: dict[tuple[str, str], exp.Expr] = field(default_factory=dict)
    is_apart: bool = False

    def find(self, name: str) -> exp.Expr | None:
        """Return the expression of a column; None if there is none of that name."""
        for candidates in (self.columns, self.hidden):
            for known, expression in candidates.items():
                if known.lower() == name.lower():
                    return expression
        return None
