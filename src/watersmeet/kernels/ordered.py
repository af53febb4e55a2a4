"""Ordered emit: rows in order of event time, within a step and across steps.

Emits       every row once its time is final: t < F, F being the operator's frontier after the batch
Ties        by the columns of ``ties``: the further ones of ORDER BY, then the rows' places in their sources, then all
            other columns, so rows that still tie are equal
NULL times  (padded rows) are emitted in the step that brings them, before the others
Late rows   never reach the kernel
State       rows with t >= F

All rows below F have been emitted, and no row below F can still arrive: so the order holds across steps.

Example: rows at 5, 12 and 8 arrive, and F rises to 10.  The step emits 5 and 8 and stores 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult, order_sql, quote


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

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the rows whose time is not final."""
        return {"rows": frontier}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Emit what has become final, in order; store the rest."""
        new = state.register(inputs[0])

        due = f"SELECT * FROM {new} WHERE {quote(TIME)} IS NULL OR {quote(TIME)} < {frontiers.after}"
        stored = state.scan("rows", frontiers.before, frontiers.after - 1)
        if stored is not None:
            due += f" UNION ALL BY NAME SELECT * FROM {stored}"
        columns = ", ".join(
            f"{quote(TIME)} AS {quote(name)}" if name == self.time else quote(name) for name in self.output
        )
        order = order_sql([(TIME, False), *self.ties])
        return StepResult(
            changes=state.query(f"SELECT {columns} FROM ({due}) ORDER BY {order}"),
            store={"rows": state.query(f"SELECT * FROM {new} WHERE {quote(TIME)} >= {frontiers.after}")},
            forget={"rows": frontiers.after},
        )
