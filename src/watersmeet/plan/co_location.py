"""Which operators run in one task: those between which no row leaves its bucket.

The rows of an operator go to the buckets of the operator that reads its results.  Where the reader may choose its
buckets by the same values, they stay where they are::

    join by id        ─  first row of each id         by id
    join by id        ─  GROUP BY id, category        by id alone
    GROUP BY id, name ─┬ join on id = seller          by id alone
    GROUP BY seller   ─┘
    rows of a stream  ─  GROUP BY auction             by auction

So an operator may be routed by a part of its key; routing_keys.py says which parts of two keys are equal.  A part that
holds nothing but bounds of windows will not do: few windows are open at a time, and most buckets would stand still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sqlglot import exp

from watersmeet.engine.keys import HashedKeys
from watersmeet.plan.operators.forward import ForwardOperator
from watersmeet.plan.physical_plan import PhysicalOperator, PhysicalPlan
from watersmeet.plan.routing_keys import KeyMatch, RoutingKey, RoutingKeys


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


class _Whole:
    """The operators visited so far, each after those whose results it reads."""

    def __init__(self, plan: PhysicalPlan, owners: Sequence[PhysicalPlan]) -> None:
        self._plan, self._keys = plan, RoutingKeys(plan, owners)
        self._is_nested = len({id(each) for each in owners}) > 1
        numbers = range(len(plan.operators))
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
            key = self._keys.of[number]
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
        if self._keys.of[number] is None or not self._gives_up_hot_keys(operator):
            return []
        matches = [
            each if feed in ready else [] for each, feed in zip(self._keys.matches(number), senders, strict=True)
        ]
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

    def _route(self, number: int, matches: Sequence[KeyMatch]) -> bool:
        """Route an operator and those that it reads by what their keys have in common; False if that will not do."""
        key, of_first = self._keys.of[number], matches[0].parts
        assert key is not None  # tested before
        common = [part for part in range(len(key.places)) if all(part in each.parts for each in matches)]
        by_sender = {of_first[part]: part for part in reversed(common)}
        parts = [by_sender[place] for place in sorted(by_sender)]
        new: dict[int, RoutingKey] = {}
        for match in matches:
            shared = match.key.of([match.parts[part] for part in parts])
            if new.setdefault(match.sender, shared) != shared:
                return False
        changed = {sender for sender, each in new.items() if each != self._keys.of[sender]}
        own = key.of(parts)
        changed |= set() if own == key else {number}
        if not parts or not all(each == number or self._may_change(each) for each in changed):
            return False
        if changed and (not self._is_nested or self._keys.are_bounds(key, parts)):
            return False
        for each, its in (*new.items(), (number, own)):
            self._keys.of[each] = its
        self._changed |= changed
        return True

    def _may_change(self, sender: int) -> bool:
        """Whether an operator's rows come from elsewhere, so that they can be routed otherwise."""
        feeds = self._plan.operators[sender].feeds
        return len(self._tasks[sender]) == 1 and len(feeds) == 1 and feeds[0].source is not None
