"""One step of the multi-way join (join.py says what it computes)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import Rows, StepResult, made_in_turn
from watersmeet.kernels.multi_way import inner, left
from watersmeet.kernels.multi_way.rows import StepRows
from watersmeet.kernels.multi_way.statistics import Statistics


def results(rows: StepRows, statistics: Mapping[str, Any]) -> tuple[Rows, dict[str, Any] | None]:
    """Form the results that are new in this step; return them and the statistics to store (None: of left joins)."""
    if rows.match.pads:
        return made_in_turn(rows.state, _or_nothing(left.terms(rows), rows), rows.count()), None
    known = Statistics.of(rows.match, statistics)
    inner.update(known, rows)
    terms = _or_nothing(inner.terms(rows, known), rows)
    return made_in_turn(rows.state, terms, rows.count(), joins_as_written=True), known.to_json()


def keep(result: StepResult, relation: str, rows: pa.Table, columns: Sequence[str], closed: int) -> None:
    """Have ``result`` store columns of the new rows from time ``closed`` on, and forget older rows."""
    kept = rows.select([*columns, TIME])
    result.store[relation] = kept.filter(pc.greater_equal(kept[TIME], closed))
    result.forget[relation] = closed


def _or_nothing(terms: Iterator[str], rows: StepRows) -> Iterator[str]:
    """Yield terms; that of no result, if there is none."""
    yield next(terms, None) or _nothing(rows)
    yield from terms


def _nothing(rows: StepRows) -> str:
    """Return SQL for no result, with the columns of one."""
    joined = " CROSS JOIN ".join(f"({rows.match.rows_sql(input, new)})" for input, new in rows.fresh.items())
    return f"SELECT {rows.match.output_sql} FROM {joined} WHERE FALSE"
