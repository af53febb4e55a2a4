"""Random expressions and conditions over the columns that ``catalog`` declares."""

from __future__ import annotations

import random
from collections.abc import Sequence

_KEYS = ("id", "cust")
_COMPARISONS = ("=", "<", ">", "<=", ">=", "<>", "!=", "<=>")
_NUMBERS = ("0", "1", "10", "-3", "2.5", "100000", "9223372036854775807", "1e3")
_TEXTS = ("''", "'a'", "'it\\'s'", "'2026-01-01'", "'%x_'", "'é😀'")
_UNITS = ("SECOND", "SECONDS", "MINUTE", "MINUTES", "HOURS", "DAYS", "MILLISECONDS")
_OF_NUMBERS = (
    "ABS({0})",
    "COALESCE({0}, {1})",
    "ROUND({0}, 1)",
    "NULLIF({0}, {1})",
    "GREATEST({0}, {1})",
    "- {0}",
    "RAND()",
)
_OF_TEXTS = ("UPPER({0})", "CONCAT({0}, {1})", "COALESCE({0}, {1})", "SUBSTRING({0}, 1, 2)", "{0} || {1}", "TRIM({0})")
#: What is mixed with what it does not go with.
_ODD = ("SIZE({0}, {1})", "ABS({0}, {1})", "TO_DATE({0})", "NO_SUCH({0})", "LENGTH({0})", "ARRAY({0})[0]", "x -> {0}")


class Conditions:
    """Draws conditions; ``unit`` is the kind of time of the streams."""

    def __init__(self, rng: random.Random, unit: str) -> None:
        self._rng = rng
        self._unit = unit

    def interval(self) -> str:
        """An interval of a clause."""
        return f"INTERVAL '{self._rng.choice((0, 1, 5, 10, 60, 1000))}' {self._rng.choice(_UNITS)}"

    def span(self) -> str:
        """A distance of two event times."""
        wants_number = self._unit == "row" or (self._unit == "s" and self._rng.random() < 0.7)
        return str(self._rng.choice((0, 1, 2, 10, 100))) if wants_number else self.interval()

    def expression(self, aliases: Sequence[str], depth: int = 2, kind: str = "") -> str:
        """A value: a number, or a text; seldom one of another kind."""
        rng, alias = self._rng, self._rng.choice(aliases)
        kind = kind or rng.choice(("number", "number", "text"))
        if rng.random() < 0.02:
            kind = "number" if kind == "text" else "text"
        is_number = kind == "number"
        if depth == 0 or rng.random() < 0.5:
            column = rng.choice(("id", "v", "n", "amount")) if is_number else "cust"
            literal = rng.choice(_NUMBERS if is_number else _TEXTS)
            return rng.choice((f"{alias}.{column}", f"{alias}.{column}", literal, f"({literal})"))
        one, other = (self.expression(aliases, depth - 1, kind) for _ in range(2))
        if rng.random() < 0.02:
            return rng.choice(_ODD).format(one, other)
        if rng.random() < 0.15:
            return f"CASE WHEN {self.condition(aliases, depth - 1)} THEN {one} ELSE {other} END"
        if rng.random() < 0.15:
            types = ("BIGINT", "DOUBLE", "DECIMAL(10, 2)", "INT") if is_number else ("STRING",)
            return f"CAST({one} AS {rng.choice(types)})"
        if is_number and rng.random() < 0.5:
            return f"{one} {rng.choice('+-*/%')} {other}"
        return rng.choice(_OF_NUMBERS if is_number else _OF_TEXTS).format(one, other)

    def condition(self, aliases: Sequence[str], depth: int = 2) -> str:
        """A condition, with marks where parentheses may stand."""
        rng = self._rng
        kind = rng.choice(("number", "text"))
        one, other = (self.expression(aliases, min(depth, 1), kind) for _ in range(2))
        draw = rng.random()
        if depth > 0 and draw < 0.35:
            parts = [self.condition(aliases, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
            found = f"({rng.choice((' AND ', ' OR ')).join(parts)})"
        elif depth > 0 and draw < 0.42:
            found = f"NOT ({self.condition(aliases, depth - 1)})"
        elif draw < 0.75:
            found = f"{one} {rng.choice(_COMPARISONS)} {other}"
        elif draw < 0.8:
            found = f"{one} {rng.choice(('', 'NOT '))}BETWEEN {other} AND {self.expression(aliases, 0, kind)}"
        elif draw < 0.85:
            found = f"{one} {rng.choice(('IS NULL', 'IS NOT NULL', 'IS NULL', '= 1 IS TRUE'))}"
        elif draw < 0.9:
            found = f"{one} {rng.choice(('', 'NOT '))}IN ({other}, {self.expression(aliases, 0, kind)})"
        elif draw < 0.95:
            found = f"{self.expression(aliases, 0, 'text')} LIKE {rng.choice(_TEXTS)}"
        else:
            found = f"{one} IS {rng.choice(('', 'NOT '))}DISTINCT FROM {other}"
        return f"«{found}»"

    def key(self, left: str, right: str) -> str:
        """An equality of the two sides."""
        column = self._rng.choice(_KEYS)
        sides = [f"{left}.{column}", f"{right}.{column}"]
        self._rng.shuffle(sides)
        draw = self._rng.random()
        if draw < 0.05:
            return f"«{sides[0]} IS NOT DISTINCT FROM {sides[1]}»"
        if draw < 0.1:
            return f"«{sides[0]} + 1 = {sides[1]} * 2»"
        return f"«{' = '.join(sides)}»"

    def window(self, left: str, right: str) -> str:
        """Inequalities that bound the distance of the two times."""
        one, other = self._rng.sample((left, right), 2)
        return self._rng.choice(
            (
                f"«{one}.ts BETWEEN {other}.ts - {self.span()} AND {other}.ts + {self.span()}»",
                f"«{one}.ts >= {other}.ts» AND «{one}.ts < {other}.ts + {self.span()}»",
                f"«{one}.ts - {other}.ts <= {self.span()}» AND «{one}.ts > {other}.ts - {self.span()}»",
                f"«ABS({one}.ts - {other}.ts) <= {self.span()}»",
                f"«{one}.ts = {other}.ts»",
                f"«{one}.ts >= {other}.ts»",
            )
        )
