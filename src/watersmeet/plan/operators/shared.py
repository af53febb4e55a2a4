"""The joins of several queries in one operator, over stores that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from watersmeet.kernels.multi_way.shared import SharedJoins
from watersmeet.plan.operators.multi_way import MultiWayOperator, state_text
from watersmeet.plan.physical_plan import PhysicalOperator, PhysicalPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOperator(PhysicalOperator):
    """All inputs are sources, one for each store."""

    kernel: SharedJoins

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    @property
    def results(self) -> tuple[Mapping[str, str], ...]:
        """By query: each result column, and the store's column that holds it."""
        return tuple(dict(self._columns(query)) for query in range(len(self.queries)))

    def _columns(self, query: int) -> Iterator[tuple[str, str]]:
        join = self.kernel.joins[query]
        names: dict[str, str] = {}
        for input, store, read in zip(join.match.inputs, join.stores, join.reads, strict=True):
            (time,) = self.feeds[read].times
            names |= {**dict(store.names), input.time: time}
        for name in join.match.output:
            yield name, names[name]

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """What each store holds, and who reads it."""
        queries = "1 query" if len(self.queries) == 1 else f"{len(self.queries)} queries"
        yield f"{self.name}: {queries} over shared stores, by key hash"
        for number, part in enumerate(plan.inputs):
            readers = []
            for query, join in enumerate(self.kernel.joins):
                alone, operator = self.queries[query], self._join(query)
                readers += [
                    f"query {query + 1} as {operator.alias(alone, input)}"
                    for input, read in enumerate(join.reads)
                    if read == number
                ]
            held = state_text(part.input, self.kernel.reach(number))
            yield f"  store of {part.input.alias}: {held}; read by {', '.join(readers)}"

    def explain_query(self, query: int, counters: Mapping[str, int]) -> Iterator[str]:
        """The lines of one query's join, with the probe orders of the last batch."""
        plan, join, prefix = self.queries[query], self._join(query), f"{query}:"
        yield from join.explain_join(plan)
        yield from join.explain_orders(plan)
        own = {}
        for name, value in counters.items():
            operator, counter, *path = name.split(".", 2)
            if operator == self.name and path and path[0].startswith(prefix):
                own[f"{join.name}.{counter}.{path[0].removeprefix(prefix)}"] = value
        yield from join.explain_run(plan, own)

    def _join(self, query: int) -> MultiWayOperator:
        (join,) = self.queries[query].operators
        assert isinstance(join, MultiWayOperator)
        return join
