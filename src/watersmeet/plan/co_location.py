"""Which operators run in one task: those between which no row leaves its bucket.

The rows of an operator go to the buckets of the operator that reads its results.  Where the reader may choose its
buckets by the same values, they stay where they are::

    join by id        ─  first row of each id         by id
    join by id        ─  GROUP BY id, category        by id alone
    GROUP BY id, name ─┬ join on id = seller          by id alone
    GROUP BY seller   ─┘
    rows of a stream  ─  GROUP BY auction             by auction

So an operator may be routed by a part of its key.  A part that holds nothing but bounds of windows will not do: few
windows are open at a time, and most buckets would stand still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from sqlglot import exp

from watersmeet.engine.keys import HashedKeys
from watersmeet.plan.logical.tree import nullable
from watersmeet.plan.operators.aggregate import AggregateOperator
from watersmeet.plan.operators.forward import ForwardOperator
from watersmeet.plan.physical_plan import Branch, PhysicalInput, PhysicalOperator, PhysicalPlan
from watersmeet.plan.sources import quoted_column

#: The hash column of rows that have no key of their own.
_ROUTE = "$h_route"


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows of an operator are routed: hash columns by input, and what they are made of."""

    routed_by: tuple[tuple[str, ...], ...]
    hashed: tuple[HashedKeys, ...]


@dataclass(slots=True)
class CoLocation:
    """What changes in a plan: by number, the hashes of inputs and the routes of operators; and the plan's tasks."""

    hashes: dict[int, Mapping[str, Sequence[exp.Expr]]] = field(default_factory=dict)
    routes: dict[int, Route] = field(default_factory=dict)
    tasks: tuple[tuple[int, ...], ...] = ()


def co_located(plan: PhysicalPlan, owners: Sequence[PhysicalPlan]) -> CoLocation:
    """How the operators of a plan are routed and divided into tasks.

    ``owners`` are the queries that they belong to.  The routes of a single query stay as they are, as checkpoints of
    earlier versions have them.
    """
    whole = _Whole(plan, owners)
    for number in range(len(plan.operators)):
        whole.visit(number)
    return whole.found()


@dataclass(frozen=True, slots=True)
class _Key:
    """What the rows of an operator are routed by, feed by feed: the parts of its key, as expressions at sources.

    ``inputs`` and ``columns`` are the inputs that hash them, and the hash columns.  ``places`` are those of the parts
    in the operator's own key.
    """

    inputs: tuple[int, ...]
    columns: tuple[str, ...]
    parts: tuple[tuple[exp.Expr, ...], ...]
    places: tuple[int, ...]

    def of(self, chosen: Sequence[int]) -> _Key:
        """The key with only those parts, in this order."""
        parts = tuple(tuple(of_feed[part] for part in chosen) for of_feed in self.parts)
        return replace(self, parts=parts, places=tuple(self.places[part] for part in chosen))


@dataclass(frozen=True, slots=True)
class _Match:
    """An operator whose results are read: its ``key``, and the parts of it that equal parts of the reader's key."""

    sender: int
    key: _Key
    parts: Mapping[int, int]  # by the reader's


class _Whole:
    """The operators visited so far, each after those whose results it reads."""

    def __init__(self, plan: PhysicalPlan, owners: Sequence[PhysicalPlan]) -> None:
        self._plan, self._owners = plan, owners
        self._is_nested = len({id(each) for each in owners}) > 1
        numbers = range(len(plan.operators))
        self._keys = [self._key_of(number) for number in numbers]
        self._changed: set[int] = set()
        self._tasks: dict[int, tuple[int, ...]] = {}  # by the last operator
        self._keyless: set[int] = set()  # those of rows that stay where they are
        read = [set(chain.from_iterable(self._senders(number))) for number in numbers]
        self._readers = Counter(chain.from_iterable(read))

    def found(self) -> CoLocation:
        """The routes that have changed, and the tasks of several operators."""
        found = CoLocation(tasks=tuple(each for each in self._tasks.values() if len(each) > 1))
        found.routes = {number: Route(((),), ()) for number in self._keyless}
        for number in sorted(self._changed):
            key = self._keys[number]
            assert key is not None  # only keys change
            for input, column, parts in zip(key.inputs, key.columns, key.parts, strict=True):
                found.hashes[input] = {**found.hashes.get(input, self._plan.inputs[input].hashes), column: parts}
            hashed = tuple(
                (tuple(columns[place] for place in key.places),) for (columns,) in self._plan.operators[number].hashed
            )
            found.routes[number] = Route(tuple((column,) for column in key.columns), hashed)
        return found

    def visit(self, number: int) -> None:
        """Put an operator into the task of those that it reads, if their rows can stay in their buckets."""
        joined = sorted(set(self._joined(number)))
        self._tasks[number] = (*sorted(each for sender in joined for each in self._tasks.pop(sender)), number)

    def _joined(self, number: int) -> Sequence[int]:
        """The operators that an operator reads, and that can run in its task."""
        operator, senders = self._plan.operators[number], self._senders(number)
        ready = [feed for feed in senders if feed and all(map(self._may_join, feed))]
        alone = [feed for feed in ready if all(self._is_alone(each) for each in feed)]
        if isinstance(operator, ForwardOperator) and ready and ready != alone:
            (feed,) = ready
            if any(map(self._is_alone, feed)):
                return []
            self._keyless.add(number)
            return feed
        if operator.single_bucket:
            return list(chain.from_iterable(alone))
        if self._keys[number] is None or not self._gives_up_hot_keys(operator):
            return []
        matches = [each if feed in ready else [] for each, feed in zip(self._matches(number), senders, strict=True)]
        places = [place for place, each in enumerate(matches) if each]
        for chosen in [places, *([place] for place in places)]:
            found = [match for place in chosen for match in matches[place]]
            others = chain.from_iterable(feed for place, feed in enumerate(senders) if place not in chosen)
            # what reads an operator twice, once by another key, has rows of it in other buckets
            if found and not {match.sender for match in found} & set(others) and self._route(number, found):
                return [match.sender for match in found]
        return []

    def _senders(self, number: int) -> list[list[int]]:
        """By feed, the operators whose results an operator reads."""
        found = []
        for feed in self._plan.operators[number].feeds:
            if feed.operator is not None:
                found.append([feed.operator])
            else:
                assert feed.source is not None
                found.append([branch.operator for branch in self._plan.inputs[feed.source].branches])
        return found

    def _is_alone(self, number: int) -> bool:
        """Whether an operator has one bucket."""
        return self._plan.operators[number].single_bucket and number not in self._keyless

    def _may_join(self, sender: int) -> bool:
        """Whether nobody else reads an operator's results, and each of its rows is where its key belongs."""
        operator = self._plan.operators[sender]
        spreads = operator.spread_rule(self._plan.query.settings) is not None
        return self._readers[sender] == 1 and not (spreads or operator.queries)

    def _gives_up_hot_keys(self, operator: PhysicalOperator) -> bool:
        """Whether an operator spreads no hot keys, or only those of results."""
        if operator.spread_rule(self._plan.query.settings) is None:
            return True
        return all(feed.source is not None and self._plan.inputs[feed.source].branches for feed in operator.feeds)

    # -- routes --------------------------------------------------------------------------------------------------------

    def _route(self, number: int, matches: Sequence[_Match]) -> bool:
        """Route an operator and those that it reads by what their keys have in common; False if that will not do."""
        key, of_first = self._keys[number], matches[0].parts
        assert key is not None  # tested before
        common = [part for part in range(len(key.places)) if all(part in each.parts for each in matches)]
        by_sender = {of_first[part]: part for part in reversed(common)}
        parts = [by_sender[place] for place in sorted(by_sender)]
        new: dict[int, _Key] = {}
        for match in matches:
            shared = match.key.of([match.parts[part] for part in parts])
            if new.setdefault(match.sender, shared) != shared:
                return False
        changed = {sender for sender, each in new.items() if each != self._keys[sender]}
        own = key.of(parts)
        changed |= set() if own == key else {number}
        if not parts or not all(each == number or self._may_change(each) for each in changed):
            return False
        if changed and (not self._is_nested or self._are_bounds(key, parts)):
            return False
        for each, its in (*new.items(), (number, own)):
            self._keys[each] = its
        self._changed |= changed
        return True

    def _may_change(self, sender: int) -> bool:
        """Whether an operator's rows come from elsewhere, so that they can be routed otherwise."""
        feeds = self._plan.operators[sender].feeds
        return len(self._tasks[sender]) == 1 and len(feeds) == 1 and feeds[0].source is not None

    def _are_bounds(self, key: _Key, parts: Sequence[int]) -> bool:
        """Whether those parts of a key are all bounds of windows, or event times."""
        return all(
            _is_bound(self._plan.inputs[key.inputs[0]], column)
            for part in parts
            for column in key.parts[0][part].find_all(exp.Column)
        )

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _key_of(self, number: int) -> _Key | None:
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
        return _Key(inputs, columns, parts, tuple(range(sizes.pop())))

    def _input_of(self, number: int, column: str) -> int:
        """The input of an operator's query that computes a hash column."""
        hashing = next(part for part in self._owners[number].inputs if column in part.hashes)
        return next(place for place, part in enumerate(self._plan.inputs) if part is hashing)

    def _matches(self, number: int) -> Iterator[list[_Match]]:
        """By feed: what an operator's key has in common with those of all operators that it reads there."""
        operator, key = self._plan.operators[number], self._keys[number]
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

    def _match(self, sender: int, input: int, parts: Sequence[exp.Expr]) -> Iterator[_Match]:
        """The parts that an operator before this one in the same query is routed by, over rows of an input."""
        key = self._keys[sender]
        if key is not None and input in key.inputs and self._is_there(sender, input):
            yield _Match(sender, key, _equal(parts, key.parts[key.inputs.index(input)]))

    def _match_results(self, branch: Branch, parts: Sequence[exp.Expr | None]) -> Iterator[_Match]:
        """The parts that the operator of a branch is routed by; None is one that it does not know."""
        sender = branch.operator
        operator, key = self._plan.operators[sender], self._keys[sender]
        if isinstance(operator, ForwardOperator):
            yield self._match_rows(sender, operator, parts)
        elif key is not None and isinstance(operator, AggregateOperator):
            names = [of_group.columns[0] for of_group in operator.hashed[0][0]]
            kinds = [_kind(part) for part in key.parts[0]]
            groups = [
                exp.cast(quoted_column(names[place]), kind) for place, kind in zip(key.places, kinds, strict=True)
            ]
            yield _Match(sender, key, _equal(parts, groups))
        elif key is not None:
            for input, of_feed in zip(key.inputs, key.parts, strict=True):
                if self._is_there(sender, input) and (equal := _equal(parts, of_feed)):
                    yield _Match(sender, key, equal)
                    return

    def _match_rows(self, sender: int, operator: ForwardOperator, parts: Sequence[exp.Expr | None]) -> _Match:
        """All parts that the source of rows can compute: they can be routed by anything."""
        (feed,) = operator.feeds
        assert feed.source is not None
        known = {part: each for part, each in enumerate(parts) if each is not None}
        column = self._plan.inputs[feed.source].input.physical(_ROUTE)
        key = _Key((feed.source,), (column,), (tuple(known.values()),), tuple(range(len(known))))
        return _Match(sender, key, {part: place for place, part in enumerate(known)})

    def _is_there(self, sender: int, input: int) -> bool:
        """Whether each result has a row of an input: no join pads it."""
        return self._plan.inputs[input].input.index not in nullable(self._owners[sender].query.root)


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
