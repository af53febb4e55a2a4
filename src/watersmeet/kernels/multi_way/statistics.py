"""What a bucket knows of its inputs, so that new rows probe them in an order that makes few partial results.

- *Estimates* (estimates.py) come from a sketch of the keys, the rows stored, the windows, and the other conditions.
- *Measured* figures, of a few rows that probe in the order of now, take the place of estimates while they are recent:
  the estimates know nothing of how conditions depend on keys.

Both are updated in some steps only, and the orders chosen anew: in the first, second, fourth … and then in every
``PERIOD``-th step.  Statistics are part of the manifest, and no result depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from watersmeet.kernels.multi_way.estimates import Estimates
from watersmeet.kernels.multi_way.key_sample import KeySample
from watersmeet.kernels.multi_way.match import MultiWayMatch
from watersmeet.kernels.multi_way.probe_orders import Order, cheapest_order

#: Steps between two updates.
PERIOD = 64
#: Updates after which a measured figure counts no more.
MAX_AGE = 8


@dataclass(slots=True)
class Statistics:
    """The statistics of one bucket; the mutable parts of its manifest."""

    match: MultiWayMatch
    sample: KeySample
    steps: int = 0
    orders: list[Order] = field(default_factory=list)
    builds: list[tuple[bool, ...]] = field(default_factory=list)  # whether each probe builds over the stored rows
    measured: dict[tuple[int, Order], tuple[float, int]] = field(default_factory=dict)  # matches per row, and age
    gauges: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, match: MultiWayMatch, stored: Mapping[str, Any]) -> Statistics:
        """Decode what the manifest holds; without, the orders are those of the windows alone."""
        if stored:
            return cls(
                match,
                KeySample.from_json(stored["sample"]),
                stored["steps"],
                [tuple(order) for order in stored["orders"]],
                [tuple(builds) for builds in stored["builds"]],
                {(input, tuple(probed)): (found, age) for input, probed, found, age in stored["measured"]},
                dict(stored["gauges"]),
            )
        inputs = len(match.inputs)
        statistics = cls(match, KeySample([0.0] * inputs))
        statistics.choose_orders(Estimates(match, statistics.sample, [0] * inputs, [0] * inputs))
        return statistics

    def to_json(self) -> dict[str, Any]:
        """Encode the statistics for the manifest; ``gauges`` are reported with the counters."""
        return {
            "sample": self.sample.to_json(),
            "steps": self.steps,
            "orders": self.orders,
            "builds": self.builds,
            "measured": [[input, probed, *figures] for (input, probed), figures in self.measured.items()],
            "gauges": self.gauges,
        }

    @property
    def are_due(self) -> bool:
        """Whether this step updates them."""
        return self.steps & self.steps - 1 == 0 or self.steps % PERIOD == 0

    # -- orders ----------------------------------------------------------------------------------------------------

    def choose_orders(self, estimates: Estimates) -> None:
        """Choose anew in which order the new rows of each input probe the others."""
        inputs = range(len(self.match.inputs))
        chosen = [
            cheapest_order((other for other in inputs if other != input), partial(self._matches, estimates, input))
            for input in inputs
        ]
        for input, (before, after) in enumerate(zip(self.orders, chosen, strict=False)):
            if before != after:  # gauges are those of the order in force
                self.gauges = {name: value for name, value in self.gauges.items() if f".{input}>" not in name}
        self.orders = chosen
        self.builds = [
            tuple(
                estimates.new[input] * self._matches(estimates, input, tuple(sorted(order[:probe])))
                > estimates.probed_rows(input, other)
                for probe, other in enumerate(order)
            )
            for input, order in enumerate(chosen)
        ]

    def _matches(self, estimates: Estimates, input: int, probed: Order) -> float:
        if not probed:
            return 1.0
        found, _ = self.measured.get((input, probed), (None, 0))
        return estimates.matches(input, probed) if found is None else found

    # -- measured figures ------------------------------------------------------------------------------------------

    def grow_old(self) -> None:
        """Count an update; what was measured long ago is forgotten."""
        self.measured = {key: (found, age + 1) for key, (found, age) in self.measured.items() if age < MAX_AGE}

    def record(self, estimates: Estimates, input: int, rows: int, partials: Sequence[int]) -> None:
        """Record how many partial results some rows of ``input`` made on their way, after each probe but the last."""
        order = self.orders[input]
        path = ">".join(str(each) for each in (input, *order))
        self._add(f"sampled.{path}", rows)
        for probe, found in enumerate(partials, 1):
            probed = tuple(sorted(order[:probe]))
            self._add(f"expected.{path}.{probe}", rows * estimates.matches(input, probed))
            self._add(f"found.{path}.{probe}", found)
            self.measured[input, probed] = found / rows, 0

    def _add(self, name: str, by: float) -> None:
        self.gauges[name] = self.gauges.get(name, 0) + by
