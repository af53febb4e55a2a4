"""The physical plan: what each source brings, and the chain of operators that rows pass.

The planner (planner.py) decides on names: which columns of each input travel, which are computed before rows are
packed, and which operator receives which.  The backends (Spark, the test harness) evaluate the expressions.  Once they
know the columns' Arrow types, worker_specs.py turns the plan into specs for the workers.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from watersmeet.columns import ID
from watersmeet.engine.gathering import Gathering
from watersmeet.engine.hot_keys import SpreadRule
from watersmeet.engine.keys import HashedKeys
from watersmeet.engine.specs import InputSpec, RowEnd
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.api import Kernel
from watersmeet.plan.emission import Emission
from watersmeet.plan.logical.query import LogicalQuery, OutputColumn
from watersmeet.plan.logical.tree import NO_GRACE, Grace, Input
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True)
class Branch:
    """A query whose results are the rows of an input: its ``plan``, and its last operator in the plan of the whole.

    ``lag`` is how far the event time of a result may lie behind that operator's frontier (None: it has none).
    """

    plan: PhysicalPlan
    operator: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class TieTerm:
    """A further term of the order by which rows are dated: a column computed at their source, which may descend."""

    name: str
    expression: exp.Expr
    descending: bool


@dataclass(frozen=True, slots=True)
class PhysicalInput:
    """One source's part of a query.

    ``computed`` and ``hashes`` are expressions over its declared columns, by physical name; ``carried`` are the columns
    that travel, ``routed_by`` the hash columns that choose the bucket.  ``passes`` (changing streams only) names the
    computed column that says whether a row passes the filter.  ``max_future`` is the most that an event time may be
    after its row's arrival, in microseconds (None: no limit).  Rows of ``branches`` are the results of operators.
    With a ``gathering``, what travels is made of the ``carried`` columns (engine/gathering.py).  With ``ties``, rows of
    one time are late by these (engine/ties.py).
    """

    input: Input
    grace: Grace = NO_GRACE
    computed: Mapping[str, exp.Expr] = field(default_factory=dict)
    hashes: Mapping[str, Sequence[exp.Expr]] = field(default_factory=dict)
    passes: str | None = None
    routed_by: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    max_future: int | None = None
    branches: tuple[Branch, ...] = ()
    gathering: Gathering | None = None
    ties: tuple[TieTerm, ...] = ()

    @property
    def packed(self) -> tuple[str, ...]:
        """The columns that are packed, beside the time and hashes: those that travel, and those of ``ties``."""
        return (*self.carried, *(each.name for each in self.ties))

    def expression_of(self, column: str) -> exp.Expr:
        """What a packed column is computed from: declared columns, by their physical names."""
        made = self.computed.get(column) or next((each.expression for each in self.ties if each.name == column), None)
        return exp.column(exp.to_identifier(column, quoted=True)) if made is None else made

    @property
    def keep(self) -> exp.Expr | None:
        """What drops rows before they are packed, as one condition: the filter, and arrays without elements."""
        inner = [each.position for each in self.input.explodes if not each.outer]
        tests: list[exp.Expr] = [exp.not_(exp.Is(this=self._own(name), expression=exp.Null())) for name in inner]
        if self.passes is None:
            tests += self.input.filters
        return exp.and_(*tests) if tests else None

    def _own(self, column: str) -> exp.Column:
        return exp.column(exp.to_identifier(self.input.physical(column), quoted=True))

    @property
    def needs_sequence(self) -> bool:
        """Whether rows must carry their position in the source."""
        return self.sequence in self.carried

    @property
    def sequence(self) -> str:
        """The physical name of the position in the source."""
        return self.input.physical("$seq")

    @property
    def origin(self) -> str:
        """What the input's columns are made of: its stream, its event time, and the computed columns.

        Of rows that may be retracted, also what they have met: a row under one condition, and its retraction under
        another, would leave a row for ever, or take one back that never came.
        """
        made = {name: expression.sql(dialect="spark") for name, expression in self.computed.items()}
        hashed = {name: [key.sql(dialect="spark") for key in keys] for name, keys in self.hashes.items()}
        time = self.input.time
        described = (self.input.stream.name.lower(), time.column, time.unit.value, made, hashed)
        exploded = (each.described for each in self.input.explodes)
        is_retracted = any(each.plan.weighted for each in self.branches)
        met = sorted(each.sql(dialect="spark") for each in self.input.filters) if is_retracted else ()
        over = () if self.input.windowed_by is None else (self.input.windowed_by.column,)
        more = (*self.input.windows, *over, *exploded, *(each.plan.select_list for each in self.branches), *met)
        return repr((*described, more) if more else described)

    @property
    def delay(self) -> int:
        """How far the watermark stays behind the newest event time, in units of internal event time."""
        return self.input.time.delay + self.grace.total


@dataclass(frozen=True, slots=True)
class Feed:
    """One input of an operator: a ``source`` or an earlier ``operator``, by its index in the plan.

    ``times`` are the physical names of the event time that counts here: the first that is not NULL.  ``lag`` is how far
    this time may lie behind the sender's frontier (None: no bound), ``slack`` how far that frontier is expected to lie
    behind the newest rows.  A feed that does not ``hold back`` leaves the operator's frontier to the other.
    ``retention``, ``late_by_own``, ``until`` and ``waited_for`` are those of ``InputSpec``.  Rows of a changelog (then
    ``changelog`` is set) carry weights.
    """

    times: tuple[str, ...]
    source: int | None = None
    operator: int | None = None
    lag: int | None = 0
    slack: int = 0
    holds_back: bool = True
    changelog: bool = False
    retention: int | None = 0
    late_by_own: bool = False
    until: RowEnd | None = None
    waited_for: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalOperator(ABC):
    """One operator before types are known.  Subclasses (operators/) describe what sets theirs apart.

    ``routed_by`` are the hash columns that choose the bucket, by input, and ``hashed`` what they are made of, where the
    operator stores rows; ``output`` are the columns of the results.
    ``weighted`` results carry ``$w``; with ``gives_ids`` they carry ``$id`` as well.  A shared operator serves
    ``queries``, each planned by itself.
    """

    name: str
    kernel: Kernel
    feeds: tuple[Feed, ...]
    routed_by: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    single_bucket: bool
    weighted: bool = False
    gives_ids: bool = False
    queries: tuple[PhysicalPlan, ...] = ()
    hashed: tuple[HashedKeys, ...] = ()

    @abstractmethod
    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """The operator's lines in EXPLAIN."""

    def explain_run(self, plan: PhysicalPlan, counters: Mapping[str, int]) -> Iterator[str]:
        """The operator's own lines in EXPLAIN about the last run, from its counters."""
        del plan, counters
        yield from ()

    @property
    def results(self) -> tuple[Mapping[str, str], ...]:
        """By query: each result column, and the name under which it arrives."""
        return ({name: name for name in self.output},)

    @property
    def gives_matches(self) -> bool:
        """Whether every result is a match of rows of all inputs."""
        return False

    @property
    def takes_pieces(self) -> bool:
        """Whether the rows of a batch may come in several steps and in any order, with the same results.

        Those that are equal by ``cut_by`` come in one step.  Where results are revised, more may then be taken back.
        """
        return False

    def cut_by(self, number: int, *, is_of_results: bool) -> tuple[str, ...] | None:
        """The columns of an input whose equal rows come in one step, as a row and its retraction must; None: any rows.

        Without columns, all rows are equal.
        """
        if not (is_of_results and self.feeds[number].changelog):
            return None
        return self.routed_by[number] or (ID,)

    @property
    def taken_last(self) -> tuple[int, ...]:
        """Inputs whose rows come after those of others, where the rows of a batch come in several steps."""
        return ()

    @property
    def waiting(self) -> tuple[str, ...]:
        """The relations whose rows are results, or are made into them, once the frontier has passed their ``$t``."""
        return ()

    @property
    def passed_on(self) -> tuple[str, ...]:
        """Columns of inputs that are results as they came and of which the kernel reads no value."""
        return ()

    @property
    def evicts_at_limit(self) -> bool:
        """Whether rows of the state are evicted at its limit; otherwise the query stops there."""
        return False

    @property
    def added_types(self) -> Mapping[str, pa.DataType]:
        """The types of result columns that no input brings."""
        return {}

    @property
    def passes_any_time(self) -> bool:
        """Whether rows pass whatever their time: where all operators from here on do so, no row is late."""
        return False

    def is_hybrid(self, settings: QuerySettings) -> bool:
        """Whether only the rows in use stay in memory, and the others on disk."""
        return settings.default_hash_join == "hybrid"

    def spread_rule(self, settings: QuerySettings) -> SpreadRule | None:
        """How to spread the rows of hot keys over the buckets; None where a key always stays in one."""
        return None

    def for_this_run(self) -> Kernel:
        """The kernel as one run of the query uses it."""
        return self.kernel

    def check(self) -> None:
        """Raise ``ConnectorError`` where an external table that the operator asks is not as declared."""
        return

    def fingerprint(self, inputs: Sequence[InputSpec], buckets: tuple[int, ...], output: pa.Schema) -> str:
        """A hash that changes whenever stored state could be misread: with inputs, types, kernel or buckets."""
        described = [
            (
                input.schema.to_string(),
                input.source,
                input.lag,
                input.origin,
                *([input.waited_for] if input.waited_for else []),
            )
            for input in inputs
        ]
        return fingerprint_of((self.name, self.kernel, described, buckets, output.to_string()))


def fingerprint_of(parts: object) -> str:
    """A hash of what something is made of, by its text."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """Sources, operators in the order in which rows pass them, and the final projection.

    ``post_filters`` are tested on results.  ``tables`` are looked up in; they are no sources of rows.  The inputs and
    operators of queries below this one come first: ``inputs_below`` and ``operators_below`` are how many (nesting.py).
    ``tasks`` are operators that can run in one task, by their numbers in ascending order; all others run alone
    (co_location.py).
    """

    query: LogicalQuery
    emission: Emission
    inputs: tuple[PhysicalInput, ...]
    operators: tuple[PhysicalOperator, ...]
    post_filters: tuple[exp.Expr, ...]
    tables: tuple[Input, ...] = ()
    inputs_below: int = 0
    operators_below: int = 0
    tasks: tuple[tuple[int, ...], ...] = ()

    @property
    def own_inputs(self) -> tuple[PhysicalInput, ...]:
        """The inputs of this query alone."""
        return self.inputs[self.inputs_below :]

    @property
    def own_operators(self) -> tuple[PhysicalOperator, ...]:
        """The operators of this query alone."""
        return self.operators[self.operators_below :]

    @property
    def streams(self) -> tuple[PhysicalInput, ...]:
        """The inputs that read streams."""
        return tuple(part for part in self.inputs if not part.branches)

    @property
    def nested(self) -> Iterator[PhysicalPlan]:
        """The queries whose results are read, then the query itself."""
        seen: set[int] = set()
        for part in self.own_inputs:
            for branch in part.branches:
                for plan in branch.plan.nested:
                    if id(plan) not in seen:
                        seen.add(id(plan))
                        yield plan
        yield self

    @property
    def select_list(self) -> tuple[str, ...]:
        """What the results are made of, as text."""
        tests = [each.sql(dialect="spark") for each in self.post_filters]
        return (*(f"{each.expression.sql(dialect='spark')} {each.name}" for each in self.outputs), *tests)

    @property
    def outputs(self) -> tuple[OutputColumn, ...]:
        """The SELECT list."""
        return self.query.outputs

    @property
    def is_shared(self) -> bool:
        """Whether several queries run as one."""
        return bool(self.operators[-1].queries)

    @property
    def queries(self) -> tuple[PhysicalPlan, ...]:
        """The queries that run as one; as a rule this one alone."""
        return self.operators[-1].queries or (self,)

    @property
    def weighted(self) -> bool:
        """Whether results carry ``$w``."""
        return self.operators[-1].weighted

    @property
    def keeps_late(self) -> bool:
        """Whether late rows are kept with their text, not only counted."""
        return self.query.settings.late_rows != "drop"

    def restored(self) -> list[tuple[str, Input]]:
        """Event-time columns (physical name, input) that the SELECT list needs and only ``$t`` carries."""
        return [
            (part.input.physical(part.input.time.column), part.input)
            for part in self.inputs
            if part.input.time_name in self.operators[-1].output and restorable(part.input)
        ]


def restorable(input: Input) -> bool:
    """Whether the event-time column can be computed back from ``$t``, so that it need not travel itself."""
    return input.time.unit is not TimeUnit.TIMESTAMP_NTZ
