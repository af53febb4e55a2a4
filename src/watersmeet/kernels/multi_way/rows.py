"""The rows that one step of the multi-way join reads: new ones, and stored ones that may form a result with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, quote
from watersmeet.kernels.multi_way.match import MultiWayMatch
from watersmeet.kernels.multi_way.stores import Store


@dataclass(slots=True)
class StepRows:
    """New and stored rows by input, and by optional input the stored first rows that lack it from this step on."""

    match: MultiWayMatch
    state: StateView
    new: Mapping[int, pa.Table]
    frontiers: StepFrontiers
    stores: Sequence[Store]
    fresh: dict[int, str] = field(default_factory=dict)
    old: dict[int, str | None] = field(default_factory=dict)
    due: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for input, joined in enumerate(self.match.inputs):
            times = self.match.due_times(input, self.frontiers.before, self.frontiers.after)
            if joined.optional and times[0] <= times[1]:
                first = self.stores[0]
                if (rows := first.read_sql(self.state.scan(first.relation, *times))) is not None:
                    self.due[input] = rows
        due = self._due_rows()
        for input in range(len(self.match.inputs)):
            self.fresh[input] = self.state.register(self.new[input])
            self.old[input] = self._stored(input, due)

    def _due_rows(self) -> pa.Table | None:
        """Return keys and times of the stored first rows that are due."""
        if not self.due:
            return None
        columns = ", ".join(quote(name) for name in (*self.match.inputs[0].keys, TIME))
        return self.state.query(" UNION ALL ".join(f"SELECT {columns} FROM {rows}" for rows in self.due.values()))

    def _stored(self, input: int, due: pa.Table | None) -> str | None:
        """Return SQL for the stored rows of an input that this step reads, with others of their keys."""
        is_probed = any(rows.num_rows for other, rows in self.new.items() if other != input)
        if not is_probed and (due is None or input == 0):
            return None
        probes = self.match.probes(input, self.new, due)
        times = self.match.partner_times(input, self.new, due)
        store = self.stores[input]
        by = store.stored(self.match.inputs[input].keys)
        found = self.state.rows_with_keys(store.relation, by, probes.rename_columns(by), *times)
        return store.read_sql(found)

    def count(self) -> int:
        """Return how many rows results are made of at most: new ones, and those that are due."""
        times = (self.match.due_times(input, self.frontiers.before, self.frontiers.after) for input in self.due)
        due = sum(self.state.most_rows(self.stores[0].relation, *each) for each in times)
        return due + sum(int(new.num_rows) for new in self.new.values())

    def count_stored(self, input: int) -> int:
        """Return how many rows an input's store holds."""
        return self.state.count(self.stores[input].relation, NEVER)

    def sql(self, input: int, *, is_old: bool, is_new: bool) -> str | None:
        """Return SQL for the rows of an input: old ones, new ones, or both; None if there are none."""
        stored = [old] if not is_new and (old := self.old[input]) is not None else []
        added = [self.fresh[input]] if not is_old and self.new[input].num_rows else []
        return " UNION ALL ".join(self.match.rows_sql(input, rows) for rows in (*stored, *added)) or None
