"""The physical plan: what each source must bring, and the chain of operators that rows pass.

It is made by the planner (planner.py), which decides on names: which columns of each input travel, which are computed
before rows are packed, and which operator takes which.  Backends (Spark, the test harness) evaluate the expressions;
once they know the columns' Arrow types, specs.py turns the plan into what the workers are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.expressions.times import TimeUnit
from watersmeet.kernels.api import Kernel
from watersmeet.plan.logical.query import Input, LogicalQuery, OutputColumn


@dataclass(slots=True)
class PhysicalInput:
    """One source's part: ``computed`` expressions over its declared columns by physical name, and what travels."""

    input: Input
    grace: int = 0
    computed: dict[str, exp.Expr] = field(default_factory=dict)
    hashes: dict[str, list[exp.Expr]] = field(default_factory=dict)  # hash column: key expressions
    passes: str | None = None  # of rows that change: the computed column that says whether one passes the filter
    routed_by: tuple[str, ...] = ()
    carried: list[str] = field(default_factory=list)

    @property
    def keep(self) -> exp.Expr | None:
        """The filter that drops rows before they are packed, as one condition."""
        return exp.and_(*self.input.filters) if self.input.filters and self.passes is None else None

    @property
    def needs_sequence(self) -> bool:
        """Whether rows must carry their place in the source."""
        return self.sequence in self.carried

    @property
    def sequence(self) -> str:
        """The physical name of the place in the source."""
        return self.input.physical("$seq")

    @property
    def origin(self) -> str:
        """What the input's columns are made of: its stream, its event time, and what is computed."""
        made = {name: expression.sql(dialect="spark") for name, expression in self.computed.items()}
        hashed = {name: [key.sql(dialect="spark") for key in keys] for name, keys in self.hashes.items()}
        time = self.input.time
        return repr((self.input.stream.name.lower(), time.column, time.unit.value, made, hashed))

    @property
    def delay(self) -> int:
        """How far behind the newest event time the frontier lies, in axis units."""
        return self.input.time.delay + self.grace


@dataclass(frozen=True, slots=True)
class Feed:
    """One input of an operator: a ``source`` or an earlier ``operator``, by its index in the plan.

    ``times`` are the physical names of the event time that counts here: the first that is not NULL.  ``lag`` is how far
    it may lie behind the frontier that the sender tells (None: it has no bound).  One that does not ``hold back``
    leaves the operator's frontier to the other.
    """

    times: tuple[str, ...]
    source: int | None = None
    operator: int | None = None
    lag: int | None = 0
    holds_back: bool = True


@dataclass(frozen=True, slots=True)
class PhysicalOperator:
    """One operator before types are known; ``routed_by`` are the hash columns that choose the bucket, by input."""

    name: str
    kernel: Kernel
    feeds: tuple[Feed, ...]
    routed_by: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    single_bucket: bool
    weighted: bool = False  # results carry $w
    gives_ids: bool = False  # and $id


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """Sources, operators in the order rows meet them, and the final projection."""

    query: LogicalQuery
    inputs: list[PhysicalInput]
    operators: list[PhysicalOperator]
    outputs: list[OutputColumn]
    post_filters: list[exp.Expr]
    tables: list[Input] = field(default_factory=list)  # that are looked up in: they are no sources of rows

    @property
    def weighted(self) -> bool:
        """Whether results carry ``$w``."""
        return self.operators[-1].weighted

    @property
    def keeps_late(self) -> bool:
        """Whether late rows are set aside with their text, not only counted."""
        return self.query.settings.late_rows != "drop"

    def table_of(self, names: Sequence[str]) -> Input:
        """The outside table that has columns of those physical names."""
        return next(table for table in self.tables if names[0].startswith(table.physical("")))

    def restored(self) -> list[tuple[str, Input]]:
        """Event-time columns (physical name, input) that the final projection needs and only ``$t`` carries."""
        return [
            (part.input.physical(part.input.time.column), part.input)
            for part in self.inputs
            if part.input.time_name in self.operators[-1].output and restorable(part.input)
        ]


def restorable(input: Input) -> bool:
    """Whether the event-time column can be computed back from ``$t``, so that it need not travel itself."""
    return input.time.unit is not TimeUnit.TIMESTAMP_NTZ
