"""What operators route their rows by, and which parts of that equal what the operators that they read are routed by.

An operator's key is compared with the keys of the operators whose results it reads, as expressions over what those
return.  A sender that only passes a stream's rows on can be routed by anything that its source computes::

    join by id  ─  GROUP BY id, category      the reader's id is the join's: part 0 equals part 0
    rows        ─  GROUP BY auction           the rows get a hash column of auction
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.plan.logical.tree import padded
from watersmeet.plan.operators.aggregate import AggregateOperator
from watersmeet.plan.operators.forward import ForwardOperator
from watersmeet.plan.physical_plan import Branch, PhysicalInput, PhysicalPlan
from watersmeet.plan.sources import quoted_column

#: The hash column of rows that have no key of their own.
_ROUTE = "$h_route"


@dataclass(frozen=True, slots=True)
class RoutingKey:
    """What the rows of an operator are routed by, feed by feed: the parts of its key, as expressions at sources.

    ``inputs`` and ``columns`` are the inputs that hash them, and the hash columns.  ``places`` are those of the parts
    in the operator's own key.
    """

    inputs: tuple[int, ...]
    columns: tuple[str, ...]
    parts: tuple[tuple[exp.Expr, ...], ...]
    places: tuple[int, ...]

    def of(self, chosen: Sequence[int]) -> RoutingKey:
        """The key with only those parts, in this order."""
        parts = tuple(tuple(of_feed[part] for part in chosen) for of_feed in self.parts)
        return replace(self, parts=parts, places=tuple(self.places[part] for part in chosen))


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """An operator whose results are read: its ``key``, and the parts of it that equal parts of the reader's key."""

    sender: int
    key: RoutingKey
    parts: Mapping[int, int]  # by the reader's


class RoutingKeys:
    """The keys of a plan's operators, by number, which may be shortened (``of``); None for one without a key."""

    def __init__(self, plan: PhysicalPlan, owners: Sequence[PhysicalPlan]) -> None:
        self._plan, self._owners = plan, owners
        self.of = [self._key_of(number) for number in range(len(plan.operators))]

    def matches(self, number: int) -> Iterator[list[KeyMatch]]:
        """By feed: what an operator's key has in common with those of all operators that it reads there."""
        operator, key = self._plan.operators[number], self.of[number]
        assert key is not None  # tested before
        for feed, input, parts in zip(operator.feeds, key.inputs, key.parts, strict=True):
            if feed.operator is not None:
                yield list(self._match(feed.operator, input, parts))
            else:
                assert feed.source is not None
                part = self._plan.inputs[feed.source]
                found = [
                    match
                    for branch in part.branches
                    for match in self._match_results(branch, [_of_results(each, part, branch) for each in parts])
                ]
                yield found if len(found) == len(part.branches) else []

    def _match(self, sender: int, input: int, parts: Sequence[exp.Expr]) -> Iterator[KeyMatch]:
        """The parts that an operator before this one in the same query is routed by, over rows of an input."""
        key = self.of[sender]
        if key is not None and input in key.inputs and self._is_there(sender, input):
            yield KeyMatch(sender, key, _equal(parts, key.parts[key.inputs.index(input)]))

    def _match_results(self, branch: Branch, parts: Sequence[exp.Expr | None]) -> Iterator[KeyMatch]:
        """The parts that the operator of a branch is routed by; None is one that it does not know."""
        sender = branch.operator
        operator, key = self._plan.operators[sender], self.of[sender]
        if isinstance(operator, ForwardOperator):
            yield self._match_rows(sender, operator, parts)
        elif key is not None and isinstance(operator, AggregateOperator):
            names = [of_group.columns[0] for of_group in operator.hashed[0][0]]
            kinds = [_kind(part) for part in key.parts[0]]
            groups = [
                exp.cast(quoted_column(names[place]), kind) for place, kind in zip(key.places, kinds, strict=True)
            ]
            yield KeyMatch(sender, key, _equal(parts, groups))
        elif key is not None:
            for input, of_feed in zip(key.inputs, key.parts, strict=True):
                if self._is_there(sender, input) and (equal := _equal(parts, of_feed)):
                    yield KeyMatch(sender, key, equal)
                    return

    def _match_rows(self, sender: int, operator: ForwardOperator, parts: Sequence[exp.Expr | None]) -> KeyMatch:
        """All parts that the source of rows can compute: they can be routed by anything."""
        (feed,) = operator.feeds
        assert feed.source is not None
        known = {part: each for part, each in enumerate(parts) if each is not None}
        column = self._plan.inputs[feed.source].input.physical(_ROUTE)
        key = RoutingKey((feed.source,), (column,), (tuple(known.values()),), tuple(range(len(known))))
        return KeyMatch(sender, key, {part: place for place, part in enumerate(known)})

    def _is_there(self, sender: int, input: int) -> bool:
        """Whether each result has a row of an input: no join pads it, also none of which a semi join shows nothing."""
        return self._plan.inputs[input].input.index not in padded(self._owners[sender].query.root)

    def are_bounds(self, key: RoutingKey, parts: Sequence[int]) -> bool:
        """Whether those parts of a key are all bounds of windows, or event times."""
        return all(
            _is_bound(self._plan.inputs[key.inputs[0]], column)
            for part in parts
            for column in key.parts[0][part].find_all(exp.Column)
        )

    def _key_of(self, number: int) -> RoutingKey | None:
        """The key of an operator; None if it has none, or one that several columns are hashed for."""
        operator = self._plan.operators[number]
        if any(len(columns) != 1 for columns in (*operator.routed_by, *operator.hashed)) or not operator.hashed:
            return None
        columns = tuple(column for (column,) in operator.routed_by)
        inputs = tuple(self._input_of(number, column) for column in columns)
        parts = tuple(
            tuple(self._plan.inputs[input].hashes[column]) for input, column in zip(inputs, columns, strict=True)
        )
        sizes = {len(each) for each in parts} | {len(of_feed) for (of_feed,) in operator.hashed}
        if len(sizes) != 1 or len(operator.hashed) != len(parts):
            return None
        return RoutingKey(inputs, columns, parts, tuple(range(sizes.pop())))

    def _input_of(self, number: int, column: str) -> int:
        """The input of an operator's query that computes a hash column."""
        hashing = next(part for part in self._owners[number].inputs if column in part.hashes)
        return next(place for place, part in enumerate(self._plan.inputs) if part is hashing)


def _kind(part: exp.Expr) -> exp.DataType:
    """The type in which a part of a key is hashed."""
    assert isinstance(part, exp.Cast)  # all are
    return part.to


def _is_bound(part: PhysicalInput, column: exp.Column) -> bool:
    name = part.input.declared(column.name)
    return part.input.window_of(name) is not None or part.input.distance_of(name) is not None


def _of_results(expression: exp.Expr, part: PhysicalInput, branch: Branch) -> exp.Expr | None:
    """A part of a key over columns of the results, over columns of the operator that gives them."""
    if not isinstance(expression, exp.Cast) or not isinstance(expression.this, exp.Column):
        return None
    name = part.input.declared(expression.this.name)
    for column, output in zip(part.input.stream.columns, branch.plan.outputs, strict=True):
        if column.name == name and isinstance(output.expression, exp.Column):
            return exp.cast(output.expression.copy(), expression.to)
    return None


def _equal(parts: Sequence[exp.Expr | None], others: Sequence[exp.Expr]) -> dict[int, int]:
    """By the place of each part: that of the one among the others that is equal."""
    return {place: others.index(part) for place, part in enumerate(parts) if part is not None and part in others}
