"""What runs a case's query step by step: the harness (harness.py) or Spark (spark_rig.py), seen from the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.columns import TP_DELTA
from watersmeet.engine.events import Event
from watersmeet.plan.physical import PhysicalPlan
from watersmeet.testing.cells import Row


@dataclass(frozen=True, slots=True)
class StepInput:
    """Rows for one stream, in the order of its declared columns, then records as raw text in its format.

    In a stream that changes one more value may follow where ``_tp_delta`` is not declared: +1 (so by default) or -1.
    """

    rows: Sequence[Row] = ()
    raw: Sequence[str] = ()


@dataclass(slots=True)
class StepOutcome:
    """What a step brought: changes with their weights, rows set aside, and cumulative counters."""

    changes: list[tuple[int, Row]] = field(default_factory=list)
    side: list[dict[str, str]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, stream_inputs: Sequence[str] = ()) -> int:
        """The sum of a counter over operators, for some inputs (by alias) or for all."""
        total = 0
        for name, value in self.counters.items():
            _, counter, *source = name.split(".", 2)
            if counter == what and (not source or not stream_inputs or source[0] in stream_inputs):
                total += value
        return total


class PlannedQuery:
    """What a case must know of its query: the plan, and the Spark type names of the result's columns."""

    def __init__(self, plan: PhysicalPlan, column_types: Sequence[str]) -> None:
        self.plan = plan
        self.column_types = column_types

    @property
    def column_names(self) -> list[str]:
        """The names of the result's columns."""
        return [column.name for column in self.plan.outputs]

    def without_delta(self, row: Row) -> Row:
        """A row without the columns that tell a change from its retraction."""
        return tuple(
            cell
            for cell, output in zip(row, self.plan.outputs, strict=True)
            if all(column.name != TP_DELTA for column in output.expression.find_all(exp.Column))
        )

    @property
    def is_ordered(self) -> bool:
        """Whether results come in the order of ORDER BY."""
        return self.plan.query.ordering is not None

    def looks_up(self, table: str) -> bool:
        """Whether the query looks up in an outside table."""
        return any(input.stream.name.lower() == table.lower() for input in self.plan.tables)

    def inputs_of(self, stream: str) -> tuple[str, ...]:
        """The aliases under which the query reads a stream."""
        named = stream.lower()
        return tuple(part.input.alias for part in self.plan.inputs if part.input.stream.name.lower() == named)


class Rig(PlannedQuery, ABC):
    """Something that runs one query, a micro-batch at a time."""

    @abstractmethod
    def restart(self) -> None:
        """Forget everything that is not durable, and go on from the rest."""

    @abstractmethod
    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Give an outside table these rows, in the order of its declared columns, in place of those it had."""

    @abstractmethod
    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed one batch: rows by stream name, and control events; what comes out comes back."""
