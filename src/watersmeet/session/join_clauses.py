"""Converts the arguments of the Python join functions into SQL clauses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from sqlglot import exp

from watersmeet.errors import ConfigError
from watersmeet.expressions.times import UNIT_MICROS

Span: TypeAlias = str | timedelta
Keys: TypeAlias = str | Sequence[str | tuple[str, str]]


def group_clauses(by: Sequence[str], aggregates: Mapping[str, str]) -> tuple[str, str]:
    """Return the SELECT list and the GROUP BY clause."""
    if not aggregates:
        raise ConfigError("there are no aggregates", hint="name at least one: aggregates={'n': 'count(*)'}")
    columns = [*by, *(f"{expression} AS {quoted(name)}" for name, expression in aggregates.items())]
    return ", ".join(columns), f" GROUP BY {', '.join(by)}" if by else ""


def emit_clause(emit: str) -> str:
    """Return the EMIT clause; ``ConfigError`` for an unknown mode."""
    if emit not in ("final", "changelog"):
        raise ConfigError(f"emit = {emit!r} is not known", hint="use 'final' or 'changelog'")
    return f"EMIT {emit.upper()}"


def settings_clause(settings: Mapping[str, str | int]) -> str:
    """Return the SETTINGS clause, with a space before it; empty without settings."""
    given = ", ".join(f"{name} = {exp.convert(value).sql(dialect='spark')}" for name, value in settings.items())
    return f" SETTINGS {given}" if given else ""


def condition(on: Keys, where: str | None) -> str:
    """Return the ON condition over ``left`` and ``right``."""
    pairs = [on] if isinstance(on, str) else on
    terms = [f"`left`.{quoted(a)} = `right`.{quoted(b)}" for a, b in map(pair, pairs)]
    if where is not None:
        terms.append(f"({where})")
    return " AND ".join(terms)


def interval(span: Span) -> str:
    """Return the INTERVAL; ``ConfigError`` if the span is not a number and a unit."""
    amount, _, unit = span_text(span).strip().partition(" ")
    try:
        float(amount)
    except ValueError:
        raise ConfigError(f"{span!r} is not a duration", hint="write '10 minutes', or use a timedelta") from None
    word = unit.strip().upper()
    if word.removesuffix("S") not in UNIT_MICROS:
        raise ConfigError(
            f"{span!r} has no unit of time", hint=f"units are {', '.join(UNIT_MICROS).lower()}; or use a timedelta"
        )
    return f"INTERVAL '{amount}' {word}"


def row_count(span: Span) -> str:
    """Return the number in a text such as ``"10"`` or ``"10 rows"``; ``ConfigError`` for any other span."""
    found = re.fullmatch(r"\s*(\d+)(\s+rows?)?\s*", span) if isinstance(span, str) else None
    if found is None:
        raise ConfigError(f"{span!r} is not a number of rows", hint="write '10'")
    return found[1]


def span_text(span: Span) -> str:
    """Return the span as a number and a unit."""
    return f"{span // timedelta(microseconds=1)} microseconds" if isinstance(span, timedelta) else span


def pair(names: str | tuple[str, str]) -> tuple[str, str]:
    """Return the (left, right) names for a pair of names, or for one name that both sides have."""
    return (names, names) if isinstance(names, str) else names


def column_list(names: str | Sequence[str]) -> Sequence[str]:
    """Return the names of one column or several."""
    return [names] if isinstance(names, str) else names


def quoted(column: str) -> str:
    """Return the name as a quoted identifier."""
    return exp.to_identifier(column, quoted=True).sql(dialect="spark")
