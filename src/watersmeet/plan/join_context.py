"""What the operator of a join is planned from: its terms, the columns it needs, and SQL for its kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.columns import TIME
from watersmeet.kernels.api import Side
from watersmeet.kernels.asof.match import Asked, Versions
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.match import SideColumns
from watersmeet.plan.across_sides import render
from watersmeet.plan.emission import Emission
from watersmeet.plan.expiry_sql import sql_of_expiry
from watersmeet.plan.join_terms import JoinTerms
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Input, Join, Leaf, nullable
from watersmeet.plan.operators.version_rules import versions_of
from watersmeet.plan.physical_plan import Feed
from watersmeet.plan.sources import Sources, quoted_column


@dataclass(frozen=True, slots=True)
class JoinContext:
    """A join and what its operator is planned from; ``needed`` are the columns that its results must have."""

    query: LogicalQuery
    emission: Emission
    sources: Sources
    join: Join
    terms: JoinTerms
    needed: frozenset[str]

    @property
    def name(self) -> str:
        """The operator's name."""
        return f"join_{self.terms.number + 1}"

    @property
    def is_last(self) -> bool:
        """Whether no other operator needs to know which result is retracted."""
        named = self.query.inner or self.query.over is not None
        return self.join is self.query.root and not named

    @property
    def single_bucket(self) -> bool:
        """Whether no key spreads the rows over the buckets."""
        return not self.terms.routes[0]

    @property
    def labels(self) -> tuple[str, str]:
        """What counters and errors call the kernel's sides: the alias of the stream that dates their rows."""
        left, right = (self.query.inputs[leaders[0]].alias for leaders in self.join.condition.leaders)
        return left, right

    # -- columns ---------------------------------------------------------------------------------------------------

    def condition_columns(self, side: Side) -> set[str]:
        """The columns of a side that the join's condition reads."""
        found = {key.of(side) for key in self.terms.keys}
        for term in self.terms.residual:
            found |= self.sources.of_side(self.sources.carried_names(term), self.join.child(side))
        for i, j, _ in (*self.join.condition.loose, *self.join.condition.exact):
            found.add(self.query.inputs[i if side is Side.LEFT else j].time_name)
        if self.replaced(side) is not None:  # a row may be replaced by one that is no longer a result
            found |= self._alternative_columns(side)
        return found

    def _alternative_columns(self, side: Side) -> set[str]:
        if side is Side.RIGHT:
            return set()
        tested, passed_by = self.terms.alternative, self.join.passed_by
        found = self.sources.carried_names(tested) if tested is not None else set()
        return found if passed_by is None else {*found, passed_by}

    def _expiry_columns(self, side: Side) -> set[str]:
        terms = (term for each in self.terms.expiries[side.index] for _, term in each.terms)
        return {self.sources.carried_name(term) for term in terms}

    def _asked_columns(self, side: Side) -> set[str]:
        asked = self.terms.as_of if side is Side.LEFT else None
        return set() if asked is None else {self.sources.carried_name(asked)}

    def output_columns(self, side: Side) -> set[str]:
        """The columns of a side that the results must hold."""
        return self.sources.of_side(self.needed, self.join.child(side)) if self.join.kind.outputs(side) else set()

    def required_columns(self, side: Side) -> set[str]:
        """All columns that a side must deliver."""
        required = self.condition_columns(side) | self.output_columns(side) | self._alternative_columns(side)
        required |= self._expiry_columns(side) | self._asked_columns(side)
        if self.join.asof is not None and side is Side.RIGHT:
            required |= set(self.versions().columns)
        if (newest := self.replaced(side)) is not None:
            required |= set(newest.columns)
        return required

    def side_columns(self, side: Side, feed: Feed | None) -> SideColumns:
        """The columns of a side as its kernel finds them; an external table has no feed."""
        time = feed.times[0] if feed is not None and len(feed.times) == 1 else None
        condition = self.condition_columns(side)
        if time is not None and self.terms.expiries[side.index]:  # $t holds the expiry: the time is a column
            condition, time = condition | {time}, None
        elif self._asked_columns(side):  # $t holds the time asked for
            time = None
        condition -= {time}
        return SideColumns(tuple(sorted(self.output_columns(side))), tuple(sorted(condition)), time)

    # -- changing streams and tables -------------------------------------------------------------------------------

    def replaced(self, side: Side) -> Newest | None:
        """How rows of a side replace each other within the join's own buckets; None where they do not.

        All changes of a key reach one bucket only if the primary key contains everything that routes them.
        """
        child = self.join.child(side)
        if self.join.asof is not None or not isinstance(child, Leaf) or not child.input.stream.changes:
            return None
        primary = {child.input.physical(name) for name in child.input.stream.primary_key}
        pairs = self.join.condition.keys
        routes = [pair.left if side is Side.LEFT else pair.right for pair in pairs]
        read = {column.name for route in routes for column in route.find_all(exp.Column)}
        return self.sources.newest(child.input) if pairs and read <= primary else None

    def versions(self) -> Versions:
        """How the right rows of a join as of a time follow each other."""
        assert self.join.asof is not None
        right = self.query.inputs[self.join.asof.right]
        pairs = self.join.condition.keys
        return versions_of(self.join.asof, right, pairs, self.terms.keys, right.physical("$seq"), self.sources.columns)

    def asked(self) -> Asked | None:
        """The time that left rows of a join as of a time ask for, where it is not their event time."""
        asof, column = self.join.asof, self.terms.as_of
        if asof is None or asof.at is None or column is None:
            return None
        unit, leaders = self.query.inputs[asof.right].time.unit, self.join.condition.leaders[Side.LEFT.index]
        name = quoted_column(self.sources.carried_name(column)).sql(dialect="duckdb")
        return Asked(
            time=f"CAST({name if unit.is_integer else f'epoch_us({name})'} AS HUGEINT) * {unit.scale}",
            event_time=self.query.inputs[leaders[0]].time_name if len(leaders) == 1 else None,
            fixed=asof.at.find(exp.Column) is None,
            too_old=f"too_old.{self.labels[0]}",
        )

    # -- SQL for the kernel ----------------------------------------------------------------------------------------

    def residual_sql(self) -> str | None:
        """What matching rows must meet beside keys and window, over the kernel's rows ``l`` and ``r``."""
        return " AND ".join(self._residual_terms()) or None

    def expiry_sql(self, side: Side) -> str | None:
        """SQL over a new row of a side: the last internal event time of a partner, NULL if there is none.

        None where the rows of the side do not expire.
        """
        if not (expiries := self.terms.expiries[side.index]):
            return None
        leader, scale = self._leader(side), self._leader(side.other).time.unit.scale

        def time(input: int) -> exp.Column:
            return quoted_column(TIME if input == leader.index else self.query.inputs[input].time_name)

        def term(column: exp.Expr) -> tuple[str, exp.DataType]:
            value = self.sources.value(column.name, time)
            return value.sql(dialect="duckdb"), self.sources.columns[column.name].type

        found = [sql_of_expiry(each, scale, term) for each in expiries]
        if len(found) == 1:
            return found[0]
        # DuckDB's least() skips NULL, and a row with one matches nothing
        known = " AND ".join(f"{each} IS NOT NULL" for each in found)
        return f"CASE WHEN {known} THEN least({', '.join(found)}) END"

    def _leader(self, side: Side) -> Input:
        """The input that dates the rows of a side, where it is one alone."""
        (leader,) = self.join.condition.leaders[side.index]
        return self.query.inputs[leader]

    def alternative_sql(self) -> str | None:
        """What makes a left row a result whatever its partners, over the kernel's row ``l``."""
        if self.join.passed_by is not None:
            return quoted_column(self.join.passed_by, Side.LEFT.alias).sql(dialect="duckdb")
        return None if self.terms.alternative is None else render(self.terms.alternative, self._column)

    def _residual_terms(self) -> Iterator[str]:
        for term in self.terms.residual:
            yield render(term, self._column)
        for i, j, interval in self.join.condition.exact:
            distance = self._time(j) - self._time(i)
            yield exp.paren(_within(distance, interval)).sql(dialect="duckdb")
        for i, j, interval in self.join.condition.loose:
            left, right = self._time(i), self._time(j)
            near = _within(right - left, interval)
            yield exp.paren(exp.or_(_is_null(left), _is_null(right), near)).sql(dialect="duckdb")
        if self.join.condition.bounds == Interval():  # otherwise the window is tested, by the first of these times
            for side in Side:
                times = {(i, j)[side.index] for i, j, _ in self.join.condition.loose}
                if times and times <= nullable(self.join.child(side)):
                    there = exp.or_(*(exp.Not(this=_is_null(self._time(input))) for input in sorted(times)))
                    yield exp.paren(there).sql(dialect="duckdb")

    def _column(self, name: str) -> exp.Expr:
        return self.sources.value(name, self._time, self._alias(self.sources.columns[name].input))

    def _alias(self, input: int) -> str:
        return (Side.LEFT if input in self.join.left.inputs else Side.RIGHT).alias

    def _time(self, input: int) -> exp.Column:
        # $t is the event time of a side's leader, unless several lead or $t holds the expiry or the time asked for
        leading = zip(Side, self.join.condition.leaders, self.terms.expiries, strict=True)
        alone = {
            leaders[0]
            for side, leaders, expiries in leading
            if len(leaders) == 1 and not expiries and not self._asked_columns(side)
        }
        return quoted_column(TIME if input in alone else self.query.inputs[input].time_name, self._alias(input))


def _within(distance: exp.Expr, interval: Interval) -> exp.Expr:
    bounds: list[exp.Expr] = []
    if interval.lower is not None:
        bounds.append(exp.GTE(this=distance.copy(), expression=exp.Literal.number(interval.lower)))
    if interval.upper is not None:
        bounds.append(exp.LTE(this=distance.copy(), expression=exp.Literal.number(interval.upper)))
    return exp.and_(*bounds) if bounds else exp.true()


def _is_null(operand: exp.Expr) -> exp.Expr:
    return exp.Is(this=operand.copy(), expression=exp.null())
