"""Forward: the operator of a query over one stream.  It emits every row at once and stores none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult
from watersmeet.kernels.homes import Homes


@dataclass(frozen=True, slots=True)
class Forward:
    """The kernel; its results have the columns of ``output``, in which ``time`` names the event time."""

    output: tuple[str, ...]
    time: str

    @property
    def partition_width(self) -> int | None:
        """None: no rows are stored."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Nothing is stored."""
        return {}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return nothing: no rows are stored."""
        return {}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Emit the new rows."""
        columns = [TIME if name == self.time else name for name in self.output]
        return StepResult(changes=inputs[0].select(columns).rename_columns(list(self.output)))
