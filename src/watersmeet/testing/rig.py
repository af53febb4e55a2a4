"""The runner's interface to what runs a query step by step: the harness (harness.py) or Spark (spark_rig.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.columns import TP_DELTA
from watersmeet.engine.control_events import Event
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.testing.cells import Row


@dataclass(frozen=True, slots=True)
class StepInput:
    """Rows for one stream, in the order of its declared columns, then records as raw text in its format.

    A row of a stream that changes may have one more value if ``_tp_delta`` is not declared: +1 (the default) or -1.
    """

    rows: Sequence[Row] = ()
    raw: Sequence[str] = ()


@dataclass(slots=True)
class StepOutcome:
    """The outcome of a step: changes with their weights, rows of the side output, and cumulative counters."""

    changes: list[tuple[int, Row]] = field(default_factory=list)
    side: list[dict[str, str]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, stream_inputs: Sequence[str] = ()) -> int:
        """Return the sum of a counter over operators, for some inputs (by alias) or for all."""
        total = 0
        for name, value in self.counters.items():
            _, counter, *source = name.split(".", 2)
            alias = source[0].partition(".")[0] if source else ""  # evicted rows are counted by alias and reason
            if counter == what and (not source or not stream_inputs or alias in stream_inputs):
                total += value
        return total


class PlannedQuery:
    """What a case needs to know about its query: the plan, and the Spark type names of the result's columns."""

    def __init__(self, plan: PhysicalPlan, column_types: Sequence[str]) -> None:
        self.plan = plan
        self.column_types = column_types

    @property
    def column_names(self) -> list[str]:
        """The names of the result's columns."""
        return [column.name for column in self.plan.outputs]

    def without_delta(self, row: Row) -> Row:
        """Return a row without the columns that distinguish a change from its retraction."""
        return tuple(
            cell
            for cell, output in zip(row, self.plan.outputs, strict=True)
            if all(column.name != TP_DELTA for column in output.expression.find_all(exp.Column))
        )

    @property
    def is_ordered(self) -> bool:
        """Whether results are in the order of ORDER BY."""
        return self.plan.query.ordering is not None

    def looks_up(self, table: str) -> bool:
        """Return whether the query looks up rows in this external table."""
        return any(input.stream.name.lower() == table.lower() for input in self.plan.tables)

    def inputs_of(self, stream: str) -> tuple[str, ...]:
        """Return the aliases under which the query reads a stream."""
        named = stream.lower()
        return tuple(part.input.alias for part in self.plan.streams if part.input.stream.name.lower() == named)


class Rig(PlannedQuery, ABC):
    """Runs one query, one micro-batch at a time."""

    @abstractmethod
    def restart(self) -> None:
        """Drop everything that is not durable, and continue from the rest."""

    @abstractmethod
    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Replace the rows of an external table; values are in the order of its declared columns."""

    @abstractmethod
    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed one batch: rows by stream name, and control events; return what the query emits."""
