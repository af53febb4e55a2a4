"""What a running query reports: its counters, by what they count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watersmeet.runtime.metrics import kernel_counters


@dataclass(frozen=True, slots=True)
class Report:
    """Counts since the query began, over restarts, and the size of its state; mappings are by input alias.

    ``reopened`` has rows behind the frontier that were used all the same (ALLOWED LATENESS).  ``expired`` and
    ``evicted`` have rows that were used, and left a join by their age (join_ttl) or, by alias and reason (``o.lru``),
    because of a limit.
    ``batches`` and ``rows_out`` count this run alone.  ``counters`` has what single kernels count (``join_1.NAME``).
    """

    batches: int = 0
    rows_in: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    reopened: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    expired: Mapping[str, int] = field(default_factory=dict)
    evicted: Mapping[str, int] = field(default_factory=dict)
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    last_batch_ms: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)


def report_of(counters: Mapping[str, int], *, batches: int, rows_out: int, last_batch_ms: int) -> Report:
    """The report that a query's counters (``OPERATOR.NAME`` or ``OPERATOR.NAME.INPUT``) add up to."""
    by_input: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for name, value in counters.items():
        _, counter, *source = name.split(".", 2)
        if source:
            by_input.setdefault(counter, {})[source[0]] = value
        else:
            totals[counter] = totals.get(counter, 0) + value
    return Report(
        batches=batches,
        rows_in=by_input.get("in", {}),
        used=by_input.get("used", {}),
        filtered=by_input.get("filtered", {}),
        late=by_input.get("late", {}),
        reopened=by_input.get("reopened", {}),
        quarantined=by_input.get("quarantined", {}),
        expired=by_input.get("expired", {}),
        evicted=by_input.get("evicted", {}),
        rows_out=rows_out,
        state_rows=totals.get("state_rows", 0),
        state_bytes=totals.get("state_bytes", 0),
        last_batch_ms=last_batch_ms,
        counters=kernel_counters(counters),
    )
