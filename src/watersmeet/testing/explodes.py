"""The elements of arrays as rows, in DuckDB instead of Spark: written from what they are, not as workers do it."""

from __future__ import annotations

from collections.abc import Collection

from watersmeet.columns import BAD, ID, STORED_FRONTIER
from watersmeet.expressions.explodes import Explode
from watersmeet.kernels.api import quote


def exploded_sql(rows: str, explode: Explode, array: str, number: int, columns: Collection[str], usable: str) -> str:
    """SQL for rows, once for each element of an array of theirs, whose positions and elements are columns then.

    Rows have the ``columns`` of a source; those that are bad or hold nothing but a frontier are not exploded, nor those
    whose event time is not ``usable``. ``number`` tells this array from others.
    """
    tests = [usable, *(f"{name} IS NULL" for name in (BAD, STORED_FRONTIER) if name in columns)]
    given = f"CASE WHEN {' AND '.join(tests)} THEN ({array}) END"
    held, length, place = (f"_{name}_{number}" for name in ("items", "length", "place"))
    entries = f"map_entries({given})" if explode.is_map else given
    element = f"{held}[{place} + 1]"
    items = [f"CAST({place} AS INTEGER) AS {quote(explode.position)}", f"{element} AS {quote(explode.element)}"]
    items += [f"({element})[{_text(field)}] AS {quote(name)}" for name, field in explode.fields]
    star = f"* EXCLUDE ({held}, {length}, {place})"
    if ID in columns:
        star += f" REPLACE (concat({quote(ID)}, ':', {place}) AS {quote(ID)})"
    with_items = f"SELECT *, {entries} AS {held}, coalesce(len({held}), 0) AS {length} FROM {rows}"
    places = f"CASE WHEN {length} = 0 THEN [NULL::BIGINT] ELSE range({length}) END"
    return f"(SELECT {star}, {', '.join(items)} FROM (SELECT *, unnest({places}) AS {place} FROM ({with_items})))"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
