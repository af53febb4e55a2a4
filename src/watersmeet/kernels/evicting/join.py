"""The windowed join (interval.py) with limits.

A batch is joined first; its last step then evicts, new rows and stored ones alike, until the state keeps its limits.
Rows below the closed time are removed first; they do not count as evicted: they are final, or have expired.

Per key     of each side at most ``max_rows_per_key`` rows with one key stay, those with the greatest event times
Bytes       the policy (limits.py) says which rows go, least first: ``oldest`` by event time; ``lru`` by keys, each
            with all its rows on both sides, by the batch in which its last row came; ``pressure`` as ``oldest``, down
            to three quarters of what the bucket may hold
Ties        rows of one time go by a hash of their values, keys of one batch by their oldest rows: every attempt at a
            batch evicts equal rows, in whatever order they arrive
NULL keys   are no key for ``max_rows_per_key`` unless they match; to ``lru`` they are one key
Unmatched   a row that would have been emitted without a partner, and is evicted without one, is emitted then (FINAL);
            under CHANGELOG it has been, and can no longer be retracted
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.kernels import interval_step
from watersmeet.kernels.api import Side, StateView, StepFrontiers, StepResult
from watersmeet.kernels.evicting.limits import Limits
from watersmeet.kernels.evicting.step import evict
from watersmeet.kernels.evicting.used_keys import USED, key_names
from watersmeet.kernels.homes import ByKey, Homes
from watersmeet.kernels.interval import IntervalJoin


@dataclass(frozen=True, slots=True)
class EvictingJoin:
    """The kernel.  Stored state does not depend on ``limits``, so a query may go on with others."""

    join: IntervalJoin
    limits: Limits = field(repr=False)

    @property
    def partition_width(self) -> int | None:
        """The partition width of the window."""
        return self.join.partition_width

    @property
    def homes(self) -> Homes | None:
        """Those of the join, and when keys were last used."""
        match = self.join.match
        names = dict(zip(match.key_columns(Side.LEFT), key_names(match), strict=True))
        return {**(self.join.homes or {}), USED: ByKey(Side.LEFT.index, names, counted=True)}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return both sides, each from the time at which a partner may still arrive."""
        return self.join.live_relations(frontier)

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join new rows with each other and with stored rows; after the last of a batch, evict what exceeds the limits.

        Raises ``LimitError`` where the policy is to stop, or a row alone takes more than the join may hold.
        """
        result = interval_step.run(
            self.join.match,
            self.join.emit,
            gives_ids=self.join.gives_ids,
            state=state,
            inputs=inputs,
            frontiers=frontiers,
            first_rid=first_rid,
            keeps_ids=True,
        )
        evict(self.join, self.limits, state, inputs, result)
        return result
