"""SQL and small helpers that both kernels of the windowed join use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, quote

if TYPE_CHECKING:
    from watersmeet.kernels.interval import IntervalJoin


def match_sql(join: IntervalJoin) -> str:
    """SQL of the match over ``l`` and ``r``."""
    terms = [
        f"l.{quote(key.left)} {'IS NOT DISTINCT FROM' if key.null_safe else '='} r.{quote(key.right)}"
        for key in join.keys
    ]
    if join.lower is not None:
        terms.append(f"r.{quote(TIME)} >= l.{quote(TIME)} + {join.lower}")
    if join.upper is not None:
        terms.append(f"r.{quote(TIME)} <= l.{quote(TIME)} + {join.upper}")
    if join.residual is not None:
        terms.append(f"({join.residual})")
    return " AND ".join(terms) or "TRUE"


def output_sql(join: IntervalJoin, aliases: Mapping[str, str]) -> str:
    """The result columns, taken from each side under its alias."""
    sides = {"left": join.left, "right": join.right}
    return ", ".join(
        f"{alias}.{quote(TIME if name == sides[side].time else name)} AS {quote(name)}"
        for side, alias in aliases.items()
        for name in sides[side].output
    )


def number(rows: pa.Table, first: int) -> pa.Table:
    """Give each row its id."""
    return rows.append_column(RID, pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)))


def time_range(rows: pa.Table) -> tuple[int, int]:
    """Least and greatest event time; an empty range where there is none."""
    times = pc.min_max(rows[TIME])
    if not times["min"].is_valid:
        return FOREVER, NEVER
    return times["min"].as_py(), times["max"].as_py()
