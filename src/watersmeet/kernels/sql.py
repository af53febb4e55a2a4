"""Pieces of SQL that kernels share."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.kernels.api import quote


def names_sql(names: Iterable[str]) -> str:
    """Return quoted names, with commas between them."""
    return ", ".join(map(quote, names))


def same_values(left: str, right: str, names: Iterable[str]) -> str:
    """Return SQL that tests whether two rows, by alias, have equal values in columns; NULL equals NULL.

    >>> same_values("a", "b", ["k"])
    'a."k" IS NOT DISTINCT FROM b."k"'
    """
    return " AND ".join(f"{left}.{quote(name)} IS NOT DISTINCT FROM {right}.{quote(name)}" for name in names) or "TRUE"
