"""A join's conditions, sorted into keys, bounds on the time between two inputs, and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.expressions.windows import WindowBound
from watersmeet.plan.across_sides import is_strict
from watersmeet.plan.external_tables import can_be_asked, looked_up_key, table_of
from watersmeet.plan.logical.conditions import in_event_times, inputs_of, time_columns
from watersmeet.plan.logical.key_types import common_key_type, type_of
from watersmeet.plan.logical.time_bounds import Interval, time_bounds
from watersmeet.plan.logical.tree import Input, InputColumn, Join, KeyPair, nullable

#: An input of a join's left side and one of its right side; bounds are those of the right time minus the left time.
Pair = tuple[int, int]


@dataclass(slots=True)
class ConditionTerms:
    """Keys, bounds of (time of j - time of i) by pair of inputs, and the rest."""

    keys: list[KeyPair] = field(default_factory=list)
    bounds: dict[Pair, Interval] = field(default_factory=dict)
    residual: list[exp.Expr] = field(default_factory=list)

    def exact(self, chosen: Pair | None = None) -> tuple[tuple[int, int, Interval], ...]:
        """The bounds to test on a pair of rows, beside the window itself."""
        return tuple((*pair, interval) for pair, interval in self.bounds.items() if pair != chosen)


def split_conditions(join: Join, inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> ConditionTerms:
    """Sort the conditions into keys, bounds on the time between two inputs, and the rest."""
    left, right = join.left.visible, join.right.visible
    terms = ConditionTerms()
    times = time_columns(inputs, columns)
    looked_up: list[tuple[KeyPair, exp.Expr]] = []
    for condition in join.condition.residual:
        key = _as_key(condition, join, columns)
        if key is not None and table_of(join) is not None and not can_be_asked(key, condition, columns):
            key = None
        found = time_bounds(in_event_times(condition, inputs, columns), times)
        if found is not None and _across(found[0], left, right):
            (i, j), interval = found
            pair, interval = ((i, j), interval) if i in left else ((j, i), interval.negated())
            terms.bounds[pair] = terms.bounds.get(pair, Interval()).intersect(interval)
            if key is not None and all(inputs[each].is_windowed for each in pair):
                terms.keys.append(key)  # few windows are open at a time, so rows are spread by theirs
        elif key is not None and table_of(join) is None and _reads_table(key, inputs, columns):
            looked_up.append((key, condition))
        elif key is not None:
            terms.keys.append(key)
            if (bound := _of_one_window(key, inputs, columns)) is not None:
                pair, interval = bound
                terms.bounds[pair] = terms.bounds.get(pair, Interval()).intersect(interval)
        else:
            terms.residual.append(condition)
    for key, condition in looked_up:
        # in a windowed join it can be tested on each match; as of a time it must choose the rows
        if not terms.keys or join.asof is not None:
            raise looked_up_key(key.left)
        terms.residual.append(condition)
    return terms


def _of_one_window(
    key: KeyPair, inputs: Sequence[Input], columns: Mapping[str, InputColumn]
) -> tuple[Pair, Interval] | None:
    """How far apart the times of two rows are whose windows begin, or end, at one time; None for other keys.

    Of windows of 10 and 20 units from s on, the left time is in [s, s + 9], the right one in [s, s + 19]: the right
    one is at most 9 before, and 19 after, the left one.
    """
    if not (isinstance(key.left, exp.Column) and isinstance(key.right, exp.Column)):
        return None
    left, right = (columns[column.name] for column in (key.left, key.right))
    of_left, of_right = (inputs[each.input].window_of(each.column) for each in (left, right))
    if of_left is None or of_right is None or of_left[1] is not of_right[1]:
        return None
    if inputs[left.input].time.unit is not inputs[right.input].time.unit:
        return None
    (one, bound), (other, _) = of_left, of_right
    if bound is not WindowBound.START:
        one, other = other, one
    unit = inputs[left.input].time.unit
    least = unit.scale if unit.is_integer else 1
    return (left.input, right.input), Interval(least - one.size, other.size - least)


def _reads_table(key: KeyPair, inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> bool:
    """Whether one of the compared columns comes from an external table."""
    return any(inputs[i].stream.outside for side in (key.left, key.right) for i in inputs_of(side, columns))


def _across(pair: Pair, left: frozenset[int], right: frozenset[int]) -> bool:
    i, j = pair
    return (i in left and j in right) or (j in left and i in right)


def _as_key(condition: exp.Expr, join: Join, columns: Mapping[str, InputColumn]) -> KeyPair | None:
    """The condition as a key; None unless it equates one input of the left side with one of the right side."""
    if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
        return None
    one, other = condition.this.unnest(), condition.expression.unnest()
    of_one, of_other = inputs_of(one, columns), inputs_of(other, columns)
    if len(of_one) != 1 or len(of_other) != 1:
        return None
    if of_one <= join.right.inputs and of_other <= join.left.inputs:
        one, other, of_one, of_other = other, one, of_other, of_one
    if not (of_one <= join.left.inputs and of_other <= join.right.inputs):
        return None
    padded = nullable(join.left) | nullable(join.right)
    if any(of <= padded and not is_strict(side) for side, of in ((one, of_one), (other, of_other))):
        return None  # a key is computed at its source, where no row is padded
    kind = common_key_type(type_of(one, columns), type_of(other, columns), condition)
    return KeyPair(one, other, isinstance(condition, exp.NullSafeEQ), kind)
