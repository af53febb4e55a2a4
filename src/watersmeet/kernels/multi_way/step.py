"""One step of the multi-way join (join.py says what it computes)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult
from watersmeet.kernels.multi_way import inner, left
from watersmeet.kernels.multi_way.match import MultiWayMatch
from watersmeet.kernels.multi_way.rows import StepRows, relation
from watersmeet.kernels.multi_way.statistics import Statistics


def run(match: MultiWayMatch, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers) -> StepResult:
    """Form the results that are new in this step, and store the new rows that may be in later ones."""
    rows, result = StepRows(match, state, inputs, frontiers), StepResult()
    if match.pads:
        terms = left.terms(rows)
    else:
        statistics = Statistics.of(match, state.statistics)
        inner.update(statistics, rows)
        terms = inner.terms(rows, statistics)
        result.statistics = statistics.to_json()
    result.changes = state.query(" UNION ALL ".join(terms) or _nothing(rows), joins_as_written=not match.pads)
    for number, input in enumerate(match.inputs):
        closed = match.closed_before(number, frontiers.after)
        kept = inputs[number].select([*input.stored, TIME])
        result.store[relation(number)] = kept.filter(pc.greater_equal(kept[TIME], closed))
        result.forget[relation(number)] = closed
    return result


def _nothing(rows: StepRows) -> str:
    """Return SQL for no result, with the columns of one."""
    joined = " CROSS JOIN ".join(f"({rows.match.rows_sql(input, new)})" for input, new in rows.fresh.items())
    return f"SELECT {rows.match.output_sql} FROM {joined} WHERE FALSE"
