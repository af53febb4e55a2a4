"""What a query did in the last hour, as rows: for charts and data frames."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from watersmeet.arrow_rows import ArrowRows
from watersmeet.html import page_part, paragraph
from watersmeet.runtime.history import SLOT_SECONDS, History

#: How long before the first batch it may have begun to take rows.
_MOST_BEFORE = 60.0


@dataclass(frozen=True, slots=True)
class HistoryRows(ArrowRows):
    """A query's last hour: a row for each five seconds in which a batch (in real time: an epoch) has ended."""

    history: History
    """What the query has reported."""

    def to_arrow(self) -> pa.Table:
        """Return the rows: when it was, rows a second since the row before, how long batches took, and the state."""
        slots = self.history.slots
        spans = self._spans()
        return pa.table(
            {
                "time": pa.array([slot.began * 1_000_000 for slot in slots], pa.timestamp("us", tz="UTC")),
                "batches": pa.array([slot.batches for slot in slots], pa.int64()),
                "rows_in_per_second": pa.array(
                    [slot.rows_in / span for slot, span in zip(slots, spans, strict=True)], pa.float64()
                ),
                "rows_out_per_second": pa.array(
                    [slot.rows_out / span for slot, span in zip(slots, spans, strict=True)], pa.float64()
                ),
                "mean_seconds": pa.array([slot.seconds / slot.batches for slot in slots], pa.float64()),
                "longest_seconds": pa.array([slot.longest for slot in slots], pa.float64()),
                "state_rows": pa.array([slot.state_rows for slot in slots], pa.int64()),
                "state_bytes": pa.array([slot.state_bytes for slot in slots], pa.int64()),
            }
        )

    def charts(self) -> str:
        """Return charts of the rates and of the batches as HTML; nothing before there are two rows."""
        if len(self.history.slots) < 2:
            return ""
        rates = self.chart(x="time", y=("rows_in_per_second", "rows_out_per_second"))
        batches = self.chart(x="time", y=("longest_seconds", "mean_seconds"))
        return f'<div class="charts"><div>{rates.svg}</div><div>{batches.svg}</div></div>'

    def _repr_html_(self) -> str:
        return page_part(self.charts() or paragraph("(fewer than two batches)", "dim"))

    def _spans(self) -> list[float]:
        """The seconds in which the rows of each slot came, as the live page has it."""
        slots = self.history.slots
        if not slots:
            return []
        first = slots[0].began - max(self.history.started, slots[0].began - _MOST_BEFORE)
        spans = [first, *(later.began - earlier.began for earlier, later in pairwise(slots))]
        return [max(span, float(SLOT_SECONDS)) for span in spans]
