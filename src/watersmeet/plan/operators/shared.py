"""The joins of several queries in one operator, over stores that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from watersmeet.kernels.multi_way.shared import SharedJoins
from watersmeet.plan.operators.multi_way import MultiWayOperator, state_text
from watersmeet.plan.physical_plan import PhysicalOperator, PhysicalPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOperator(PhysicalOperator):
    """All inputs are sources, one for each store.  ``queries`` are those that the operator serves."""

    kernel: SharedJoins
    queries: tuple[PhysicalPlan, ...]

    @property
    def results(self) -> tuple[Mapping[str, str], ...]:
        """The result columns of each query, and the columns of the stores that they are."""
        return tuple(dict(self._columns(number)) for number in range(len(self.queries)))

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
        yield f"{self.name}: {len(self.queries)} queries over shared stores, by key hash"
        for number, part in enumerate(plan.inputs):
            uses = [
                (f"query {query} as {self._alias(query - 1, input)}", join.match.inputs[input].reach)
                for query, join in enumerate(self.kernel.joins, 1)
                for input, read in enumerate(join.reads)
                if read == number
            ]
            reaches = [reach for _, reach in uses]
            known = [reach for reach in reaches if reach is not None]
            longest = max(known) if len(known) == len(reaches) else None
            readers = ", ".join(reader for reader, _ in uses)
            yield f"  store of {part.input.alias}: {state_text(part.input, longest)}; read by {readers}"

    def explain_query(self, number: int, counters: Mapping[str, int]) -> Iterator[str]:
        """The lines of one query's join, with the probe orders of the last batch."""
        plan, join = self.queries[number], self._join(number)
        yield from join.explain_join(plan)
        own = {}
        for name, value in counters.items():
            operator, counter, *path = name.split(".", 2)
            query, colon, rest = path[0].partition(":") if path else ("", "", "")
            if operator == self.name and colon and query == str(number):
                own[f"{join.name}.{counter}.{rest}"] = value
        yield from join.explain_run(plan, own)

    def _join(self, number: int) -> MultiWayOperator:
        (join,) = self.queries[number].operators
        assert isinstance(join, MultiWayOperator)
        return join

    def _alias(self, query: int, input: int) -> str:
        source = self._join(query).feeds[input].source
        assert source is not None
        return self.queries[query].inputs[source].input.alias
