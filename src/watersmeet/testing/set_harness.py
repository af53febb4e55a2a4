"""The test harness of queries that run as one, over shared stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.bind.statement_sets import plan_set
from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.control_events import Event
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.sql.statements import Query
from watersmeet.testing.harness import Harness
from watersmeet.testing.rig import StepInput, StepOutcome


class SetHarness(Harness):
    """Queries that run as one; ``step_all`` feeds them a batch."""

    def __init__(
        self,
        streams: Mapping[str, StreamDef],
        queries: Sequence[Query],
        *,
        buckets: int = 2,
        memory_limit: str | None = None,
    ) -> None:
        self._shared = plan_set(queries, streams)
        super().__init__(streams, queries[0], buckets=buckets, memory_limit=memory_limit)

    def _planned(self, query: Query) -> tuple[PhysicalPlan, Sequence[PhysicalPlan]]:
        del query
        return self._shared.plan, self._shared.queries

    def step_all(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> list[StepOutcome]:
        """Feed rows as ``step`` does; return what each query emits.  Counters are with the first."""
        return self._outcomes(inputs, events)
