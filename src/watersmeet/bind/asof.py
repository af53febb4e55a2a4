"""ASOF JOIN … MATCH_CONDITION and FOR SYSTEM_TIME AS OF: which right row of its key a left row matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.dated_results import check_results, dated_by, versioned_on
from watersmeet.catalog.streams import StreamMode
from watersmeet.errors import BindError, Position, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.nodes import SystemTime
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.times import unit_of_type
from watersmeet.expressions.type_groups import INTEGERS
from watersmeet.kernels.api import JoinKind
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.across_sides import is_plain
from watersmeet.plan.logical.conditions import conjuncts, inputs_of, time_columns
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.time_bounds import Interval, time_bounds
from watersmeet.plan.logical.tree import AsofClause, Input, InputColumn, Join, Leaf, nullable, timed

_DIRECTIONS: dict[type[exp.Expr], Direction] = {
    exp.GTE: Direction.BACKWARD,
    exp.GT: Direction.BACKWARD,
    exp.LTE: Direction.FORWARD,
    exp.LT: Direction.FORWARD,
}
_TURNED = {Direction.BACKWARD: Direction.FORWARD, Direction.FORWARD: Direction.BACKWARD}
_FORM = "write MATCH_CONDITION (t.ts >= q.ts), with >= > <= < or NEAREST(t.ts, q.ts), and a tolerance after AND"
_NO_WITHIN = "write a tolerance: MATCH_CONDITION (t.ts >= q.ts AND t.ts - q.ts <= INTERVAL '5' SECONDS)"
_NO_WITHIN_OF_TABLE = (
    "leave it out: the version at that time matches, however old it is; an ASOF JOIN takes a tolerance"
)


class AsofBinder:
    """Reads the clause of one join, with columns resolved to physical ones."""

    def __init__(
        self, join: Join, inputs: Sequence[Input], columns: Mapping[str, InputColumn], *, of_table: bool
    ) -> None:
        self._join = join
        self._inputs = inputs
        self._columns = columns
        if join.kind not in (JoinKind.INNER, JoinKind.LEFT):
            raise UnsupportedError(
                f"{join.title.upper()} JOIN as of a time is not supported",
                hint="use INNER or LEFT",
                position=join.position,
            )
        if join.within is not None:
            raise UnsupportedError(
                "a join as of a time has no WITHIN",
                hint=_NO_WITHIN_OF_TABLE if of_table else _NO_WITHIN,
                position=join.within.position or join.position,
            )
        if not isinstance(join.right, Leaf):
            raise UnsupportedError(
                "the right side of a join as of a time is a stream or a query, not joins in parentheses",
                hint="write them as a query with a name: (SELECT … FROM … JOIN …) q",
                position=join.position,
            )
        self.right: Input = join.right.input  # VERSIONED ON gives it another event time
        check_results(self.right, join.position)
        self._is_external = self.right.stream.outside
        self._is_versioned = False  # on another column than the event time

    def match_condition(self, condition: exp.Expr) -> AsofClause:
        """Read MATCH_CONDITION.

        Raises ``BindError`` unless it compares the event times of both sides, ``UnsupportedError`` for anything
        beyond a comparison and a tolerance.
        """
        if self._is_external:
            raise self._only_now(None)
        if self.right.stream.mode is StreamMode.VERSIONED:
            raise UnsupportedError(
                f"{self.right.stream.name} has mode versioned_kv: its rows are versions of a table",
                hint="use FOR SYSTEM_TIME AS OF, or mode = 'changelog_kv', whose rows stay until they are retracted",
                position=self._join.position,
            )
        first, *others = conjuncts(condition)
        if _is_nearest(first):
            direction, strict, operands = Direction.NEAREST, False, list(first.expressions)
        elif type(first) in _DIRECTIONS:
            direction, strict = _DIRECTIONS[type(first)], isinstance(first, exp.GT | exp.LT)
            operands = [first.this, first.expression]
        else:
            raise BindError(
                f"{plain_sql(first)} does not determine which row matches", hint=_FORM, position=position_of(first)
            )
        for operand in operands:
            self._date_results(operand.unnest())
        one, other = (self._time(operand, timed(self._join)) for operand in operands)
        if one == self.right.index and other in self._join.left.visible:
            one, other = other, one
            direction = _TURNED.get(direction, direction)
        if one not in self._join.left.visible or other != self.right.index:
            raise BindError(
                f"{plain_sql(first)} must compare a time of the left side with one of the right side",
                hint=_FORM,
                position=position_of(first),
            )
        tolerance = self._tolerance(one, direction, others)
        return AsofClause(one, other, direction, strict, tolerance, in_order=self._is_in_order())

    def system_time(self, version: SystemTime, time: exp.Expr | None) -> AsofClause:
        """Read FOR SYSTEM_TIME AS OF: the newest version at or before ``time``, its resolved operand.

        ``time`` None (PROCTIME()) means the newest version known. Raises ``BindError`` for an operand that is not a
        time of the left side and for an invalid VERSIONED ON, ``UnsupportedError`` for a table that cannot be versioned
        and for a time that cannot be computed at one source.
        """
        if self._is_external and (time is not None or version.args.get("versioned_on") is not None):
            raise self._only_now(position_of(version))
        if (named := version.args.get("versioned_on")) is not None:
            self._version_on(named, position_of(named) or position_of(version))
        if any(self.right.is_time(column) for column in self.right.entity_key or ()):
            key = "PARTITION BY or GROUP BY" if self.right.versions_of is not None else "the primary key"
            raise UnsupportedError(
                f"{key} of {self.right.stream.name} holds its event time, {self.right.time.column}: "
                "each row would have a key of its own",
                hint=f"leave it out of {key}",
                position=position_of(version),
            )
        if time is None:
            times = timed(self._join.left)
            if not times:
                raise UnsupportedError(
                    "an external table cannot be the left side of a join: its rows have no event time",
                    hint="put the stream on the left",
                    position=position_of(version),
                )
            leader = min(times - nullable(self._join.left) or times)
            return AsofClause(leader, self.right.index, Direction.CURRENT, of_table=True)
        time, in_order = time.unnest(), self._is_in_order()
        if not inputs_of(time, self._columns) <= self._join.left.visible:
            raise BindError(
                f"AS OF {plain_sql(time)}: expected a time of the left side",
                hint=f"event times there: {', '.join(self._left_times())}",
                position=position_of(version),
            )
        known = self._columns.get(time.name) if isinstance(time, exp.Column) else None
        if known is not None and self._inputs[known.input].is_time(known.column):
            return AsofClause(known.input, self.right.index, Direction.BACKWARD, of_table=True, in_order=in_order)
        leader = self._dated_by(time, position_of(time) or position_of(version))
        return AsofClause(leader, self.right.index, Direction.BACKWARD, of_table=True, at=time, in_order=in_order)

    def _dated_by(self, time: exp.Expr, position: Position | None) -> int:
        """Check AS OF a time that is no event time: a column, a constant, or a simple expression over one stream.

        Returns the input that it is computed from, a constant from any.
        """
        text, unit = plain_sql(time), self.right.time.unit
        if not is_plain(time):
            raise UnsupportedError(
                f"AS OF {text}: a time is a column of the left side, a constant, or a simple expression over them",
                hint="compute it in a CREATE STREAM … AS first; the time at which a row is processed is PROCTIME()",
                position=position,
            )
        reads = inputs_of(time, self._columns)
        left = self._join.left
        if len(reads) > 1 or (reads or timed(left)) <= nullable(left):
            raise UnsupportedError(
                f"AS OF {text}: the time must be computed from one stream whose rows are always there",
                hint="compute it in a CREATE STREAM … AS first",
                position=position,
            )
        kind = type_of(time, self._columns)
        if not (kind.is_type(*INTEGERS) if unit.is_integer else unit_of_type(kind) is unit):
            wanted = "a whole number" if unit.is_integer else unit.value.upper()
            raise BindError(
                f"AS OF {text} is {kind.sql(dialect='spark')}, and {self.right.alias}.{self.right.time.column}, the "
                f"time of versions, is {wanted}",
                hint=f"CAST it to {'BIGINT' if unit.is_integer else wanted}",
                position=position,
            )
        return min(reads or (timed(left) - nullable(left)))

    def _left_times(self) -> list[str]:
        """The event times of the left side."""
        return [f"{self._inputs[i].alias}.{self._inputs[i].time.column}" for i in sorted(timed(self._join.left))]

    def _is_in_order(self) -> bool:
        """Whether the right stream only appends, and declares that its rows come in the order of their times."""
        stream = self.right.stream
        is_declared = stream.has_watermark and not stream.delay and not stream.derived and not self._is_versioned
        return is_declared and not stream.changes

    def _only_now(self, position: Position | None) -> UnsupportedError:
        return UnsupportedError(
            f"{self.right.stream.name} is an external table: only its current rows can be looked up",
            hint="write FOR SYSTEM_TIME AS OF PROCTIME(); for versions by time use a stream",
            position=position or self._join.position,
        )

    def _version_on(self, named: exp.Expr, position: Position | None) -> None:
        """Use a declared column as the event time of the right side; the declared delay still applies."""
        stream = self.right.stream
        if self.right.is_time(named.name):
            return
        if self.right.results is not None:
            self.right = versioned_on(self.right, named.name, position)
            return
        column = stream.column(named.name)
        assert column is not None  # resolved by the caller
        unit = unit_of_type(exp.DataType.build(column.type, dialect="spark"))
        if unit is None:
            raise BindError(
                f"VERSIONED ON {column.name}: {column.type} is not a time",
                hint="name a TIMESTAMP, a TIMESTAMP_NTZ or a whole number (milliseconds)",
                position=position,
            )
        if stream.derived or (stream.time_unit is TimeUnit.ROWS and stream.delay):
            raise UnsupportedError(
                f"VERSIONED ON {column.name}: the watermark of {stream.name} is on {stream.time_column}",
                hint=f"declare WATERMARK FOR {column.name} AS {column.name} - INTERVAL '…'",
                position=position,
            )
        self._is_versioned = True
        self.right = replace(
            self.right, stream=stream.model_copy(update={"time_column": column.name, "time_unit": unit})
        )

    def _date_results(self, operand: exp.Expr) -> None:
        """Date results on the right side by the bound of a window that is compared."""
        known = self._columns.get(operand.name) if isinstance(operand, exp.Column) else None
        if known is not None and known.input == self.right.index:
            self.right = dated_by(self.right, known.column) or self.right
            self._inputs = [self.right if each.index == self.right.index else each for each in self._inputs]

    def _time(self, operand: exp.Expr, candidates: frozenset[int]) -> int:
        """Return the input whose event time an operand is; ``candidates`` are listed in the error."""
        operand = operand.unnest()
        known = self._columns.get(operand.name) if isinstance(operand, exp.Column) else None
        if known is None or not self._inputs[known.input].is_time(known.column):
            times = [f"{self._inputs[i].alias}.{self._inputs[i].time.column}" for i in sorted(candidates)]
            raise BindError(
                f"{plain_sql(operand)} is not an event time",
                hint=f"event times here: {', '.join(times)}",
                position=position_of(operand),
            )
        return known.input

    def _tolerance(self, left: int, direction: Direction, terms: Sequence[exp.Expr]) -> int | None:
        """Return the largest distance that the further terms allow; None without terms."""
        pair = (left, self.right.index)
        reaches = []
        for term in terms:
            found = time_bounds(term, time_columns(self._inputs, self._columns))
            if found is None or sorted(found[0]) != sorted(pair):
                raise self._no_tolerance(term)
            reach = _reach(found[1] if found[0] == pair else found[1].negated(), direction)
            if reach is None:
                raise self._no_tolerance(term)
            if reach < 0:
                raise UnsupportedError(
                    f"{plain_sql(term)}: a tolerance cannot be negative",
                    hint="it is the largest distance in the direction of the first comparison",
                    position=position_of(term),
                )
            reaches.append(reach)
        return min(reaches, default=None)

    def _no_tolerance(self, term: exp.Expr) -> UnsupportedError:
        return UnsupportedError(
            f"{plain_sql(term)} is not a tolerance",
            detail="MATCH_CONDITION takes a comparison of two event times and a bound on their distance",
            hint="write t.ts - q.ts <= INTERVAL '5' SECONDS (NEAREST: ABS(t.ts - q.ts) <= …); all else goes into ON",
            position=position_of(term),
        )


def _is_nearest(term: exp.Expr) -> bool:
    return isinstance(term, exp.Anonymous) and term.name.upper() == "NEAREST" and len(term.expressions) == 2


def _reach(distance: Interval, direction: Direction) -> int | None:
    """Return the bound of a distance if it is bounded only in the direction of the match; None otherwise."""
    before, after = None if distance.lower is None else -distance.lower, distance.upper
    match direction:
        case Direction.BACKWARD:
            return before if after is None else None
        case Direction.FORWARD:
            return after if before is None else None
        case _:
            return before if before == after else None
