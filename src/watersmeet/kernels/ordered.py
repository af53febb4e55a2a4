"""Ordered emit: rows in order of event time, within a step and across steps.

Emits       every row once its time is final: t < F, F being the operator's frontier after the batch
Ties        by the columns of ``ties``: the further ones of ORDER BY, then the rows' places in their sources, then all
            other columns, so rows that still tie are equal
NULL times  (padded rows) are emitted in the step that brings them, before the others
Late rows   never reach the kernel
State       rows with t >= F

All rows below F have been emitted, and no row below F can still arrive: so the order holds across steps.  Rows that
arrive in order are not sorted again.

Example: rows at 5, 12 and 8 arrive, and F rises to 10.  The step emits 5 and 8 and stores 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult, in_one_table, made, order_sql, quote
from watersmeet.kernels.homes import Homes

WAITING = "rows"


@dataclass(frozen=True, slots=True)
class OrderedEmit:
    """The kernel; it emits its one input's rows with the columns of ``output``.

    ``time`` names the event time in results.  ``ties`` are (column, descending) pairs; NULLs are first in ascending
    order, last in descending order.
    """

    output: tuple[str, ...]
    time: str
    ties: tuple[tuple[str, bool], ...] = ()

    @property
    def partition_width(self) -> int | None:
        """None: rows are stored in one partition."""
        return None

    @property
    def homes(self) -> Homes | None:
        """None: there is one bucket."""
        return None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the rows whose time is not final."""
        return {WAITING: frontier}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Emit what has become final, in order; store the rest."""
        rows = inputs[0]
        stored = state.scan(WAITING, frontiers.before, frontiers.after - 1)
        if stored is None and is_sorted(rows, [(TIME, False), *self.ties]):
            is_due = pc.less(rows[TIME], frontiers.after)
            changes = rows.filter(is_due).select([TIME if name == self.time else name for name in self.output])
            return StepResult(
                changes=changes.rename_columns(list(self.output)),
                store={WAITING: rows.filter(pc.invert(is_due))},
                forget={WAITING: frontiers.after},
            )
        new = state.register(rows)
        most = rows.num_rows + state.most_rows(WAITING, frontiers.before, frontiers.after - 1)
        due = f"SELECT * FROM {new} WHERE {quote(TIME)} IS NULL OR {quote(TIME)} < {frontiers.after}"
        if stored is not None:
            due += f" UNION ALL BY NAME SELECT * FROM {stored}"
        columns = ", ".join(
            f"{quote(TIME)} AS {quote(name)}" if name == self.time else quote(name) for name in self.output
        )
        order = order_sql([(TIME, False), *self.ties])
        return StepResult(
            changes=made(state, f"SELECT {columns} FROM {in_one_table(state, due, most)} ORDER BY {order}", most),
            store={WAITING: state.query(f"SELECT * FROM {new} WHERE {quote(TIME)} >= {frontiers.after}")},
            forget={WAITING: frontiers.after},
        )


def is_sorted(rows: pa.Table, order: Sequence[tuple[str, bool]]) -> bool:
    """Return whether rows are in an order of (column, descending) pairs; False where NULLs or NaNs make it hard to say.

    Each term is compared for rows that all terms before leave equal.
    """
    if rows.num_rows < 2:
        return bool(rows.num_rows == 0 or rows[TIME].null_count == 0)
    undecided = None
    for name, descending in order:
        column = rows[name].combine_chunks()
        if column.null_count or pa.types.is_nested(column.type):
            return False
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        if descending:
            before, after = after, before
        is_less, is_equal = pc.less(before, after), pc.equal(before, after)
        is_kept = pc.or_(is_less, is_equal)
        holds = is_kept if undecided is None else pc.or_(is_kept, pc.invert(undecided))
        if not pc.all(holds).as_py():
            return False
        undecided = is_equal if undecided is None else pc.and_(undecided, is_equal)
        if not pc.any(undecided).as_py():
            break
    return True
