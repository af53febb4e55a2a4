"""Group joins that one operator can compute (kernels/multi_way).

A group is a largest subtree of joins over append-only streams, three or more, all of which share a key:

    a.k = b.k AND b.k = c.k        a.k, b.k and c.k are one key, common to all three
    a.k = b.k AND b.j = c.j        no key is common: one join after the other

Equalities of one type are followed over the streams between.  There are two shapes:

- Inner joins alone.  All conditions hold for each result, so bounds between the times of two streams follow from those
  over a third.
- A chain of inner and left joins, each adding one stream, with final results.  A join's conditions hold where a row of
  its stream is there.  So all that is known of that stream follows from its own join's conditions, and from what is
  known of the streams that these compare it with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.kernels.api import EmitMode, JoinKind, Side
from watersmeet.plan.emission import decide_emission
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.time_bounds import Differences
from watersmeet.plan.logical.tree import (
    CommonKey,
    InputColumn,
    Join,
    JoinGroup,
    KeyPair,
    Leaf,
    Node,
    joins_of,
    leaves_of,
    operators_of,
)

Columns = Mapping[str, InputColumn]


def group_joins(query: LogicalQuery) -> LogicalQuery:
    """The query with its groups marked, as ``multi_join`` says; none where joins have limits of their own.

    Raises ``PlanError`` if ``multi_join`` is 'on' and there is no group, and what ``decide_emission`` raises.
    """
    wanted = query.settings.multi_join
    if wanted == "off" or query.settings.limits_joins:
        return query
    grouped = replace(query, root=_grouped(query.root, query))
    if wanted == "on" and all(join.group is None for join in operators_of(grouped.root)):
        raise PlanError(
            "multi_join = 'on', but no joins of this query can run in one operator",
            detail="; ".join(ungrouped(grouped))
            or "there are no inner or left joins of three append-only streams in a row",
            hint="leave it out, or give all of these streams a key in common",
            position=query.text.settings_positions.get("multi_join", query.text.position),
        )
    return grouped


def ungrouped(query: LogicalQuery) -> Iterator[str]:
    """Why joins of three streams and more run one after the other, where they do."""
    yield from _ungrouped(query.root, query)


def _ungrouped(node: Node, query: LogicalQuery) -> Iterator[str]:
    if isinstance(node, Leaf) or node.group is not None:
        return
    if len(node.inputs) >= _least_inputs(query) and (_is_inner(node) or _is_chain(node)):
        names = ", ".join(query.inputs[leaf.input.index].alias for leaf in leaves_of(node))
        if any(join.condition.ttl is not None for join in joins_of(node)):
            yield f"{names}: join_ttl is for joins that run one after the other"
        elif _has_expiries(node):
            yield f"{names}: a join whose rows expire by their own columns runs by itself"
        elif _is_inner(node):
            yield f"{names} have no key of one type in common"
        elif not _is_final(query):
            yield f"{names}: left joins run in one operator where results are final, and here they are a changelog"
        elif None in _chain_times(node, query.columns)[1].values():
            yield f"{names}: left joins run in one operator where windows bound how long each row stays"
        else:
            yield f"{names} have no key of one type in common that each join compares with ="
    else:
        yield from _ungrouped(node.left, query)
        yield from _ungrouped(node.right, query)


def _least_inputs(query: LogicalQuery) -> int:
    """The fewest streams that one multi-way operator joins: as a rule, two streams have an operator of their own."""
    return 2 if query.shares_stores else 3


def _is_final(query: LogicalQuery) -> bool:
    return decide_emission(query).mode is EmitMode.FINAL


def _grouped(node: Node, query: LogicalQuery) -> Node:
    if isinstance(node, Leaf):
        return node
    group = _group_of(node, query)
    if group is None:
        return replace(node, left=_grouped(node.left, query), right=_grouped(node.right, query))
    lags = {input: None if reach is None else max(reach, 0) for input, reach in group.reaches.items()}
    return replace(node, group=group, condition=replace(node.condition, lags=lags))


def _group_of(top: Join, query: LogicalQuery) -> JoinGroup | None:
    """The group of all joins at and below ``top``; None if one operator cannot compute them."""
    if len(top.inputs) < _least_inputs(query) or _has_expiries(top):
        return None
    if any(join.condition.ttl is not None for join in joins_of(top)):
        return None
    if _is_inner(top):
        return _inner_group(top, query.columns)
    return _chain(top, query.columns) if _is_chain(top) and _is_final(query) else None


# -- which joins ---------------------------------------------------------------------------------------------------


def _is_inner(node: Node) -> bool:
    """Whether a subtree has inner joins of append-only streams alone."""
    if isinstance(node, Leaf):
        return _is_append_only(node)
    return _is_plain(node) and node.kind is JoinKind.INNER and _is_inner(node.left) and _is_inner(node.right)


def _is_chain(node: Node) -> bool:
    """Whether a subtree has inner and left joins alone, each of which adds one append-only stream."""
    if isinstance(node, Leaf):
        return _is_append_only(node)
    may_be = _is_plain(node) and node.kind in (JoinKind.INNER, JoinKind.LEFT)
    return may_be and isinstance(node.right, Leaf) and _is_append_only(node.right) and _is_chain(node.left)


def _is_append_only(leaf: Leaf) -> bool:
    return not leaf.input.changes and not leaf.input.stream.outside


def _is_plain(join: Join) -> bool:
    return join.asof is None and not join.null_aware


def _has_expiries(node: Node) -> bool:
    return any(any(join.condition.expiries) for join in joins_of(node))


# -- groups --------------------------------------------------------------------------------------------------------


def _inner_group(top: Join, columns: Columns) -> JoinGroup | None:
    """The group of all joins at and below ``top``, inner ones; None if their streams share no key."""
    joins = list(joins_of(top))
    inputs = tuple(leaf.input.index for leaf in leaves_of(top))
    differences = _all_differences(joins)
    reaches = {input: _reach(input, inputs, differences) for input in inputs}
    return _group(joins, inputs, differences, reaches, columns)


def _chain(top: Join, columns: Columns) -> JoinGroup | None:
    """The group of a chain of joins up to ``top``, some of them left ones.

    None if their streams share no key, or if rows would stay for ever: in a chain of operators, some may not.
    """
    joins = list(joins_of(top))
    inputs = tuple(leaf.input.index for leaf in leaves_of(top))
    optional = _optional(top)
    differences, reaches = _chain_times(top, columns)
    if None in reaches.values():
        return None
    group = _group(joins, inputs, differences, reaches, columns)
    keys = tuple(key for key in group.keys if _holds_where_padded(key, joins, columns)) if group is not None else ()
    if group is None or not keys:
        return None
    pairs = [pair for join in joins for pair in join.condition.keys]
    common = {operand for key in keys for operand in _operands_of(key, columns)}
    tested = [pair for pair in pairs if not _is_implied(_operands(pair, columns), common, optional)]
    return replace(group, keys=keys, pairs=tuple(tested), optional=optional)


def _group(
    joins: Sequence[Join],
    inputs: tuple[int, ...],
    differences: Differences,
    reaches: Mapping[int, int | None],
    columns: Columns,
) -> JoinGroup | None:
    keys, others = _common_keys(inputs, [pair for join in joins for pair in join.condition.keys], columns)
    if not keys:
        return None
    graces = {leaf.input.index: join.condition.grace for join in joins for leaf in _own_leaves(join)}
    return JoinGroup(
        inputs=inputs,
        keys=keys,
        pairs=others,
        residual=tuple((join, term) for join in joins for term in join.condition.residual),
        differences=differences,
        graces=tuple(graces[input] for input in inputs),
        reaches=reaches,
    )


def _own_leaves(join: Join) -> Iterator[Leaf]:
    for side in Side:
        if isinstance(child := join.child(side), Leaf):
            yield child


# -- times ---------------------------------------------------------------------------------------------------------


def _all_differences(joins: Sequence[Join]) -> Differences:
    """All bounds between the times of two inputs, loose ones too: no row of an inner join lacks a time."""
    found = Differences()
    for join in joins:
        condition = join.condition
        (left, *_), (right, *_) = condition.leaders
        for i, j, interval in ((left, right, condition.bounds), *condition.loose, *condition.exact):
            found.add(i, j, interval)
    found.close()
    return found


def _reach(input: int, inputs: Sequence[int], differences: Differences) -> int | None:
    """How long after a row another may come that it can be in a result with."""
    latest = [differences.get(input, other).upper for other in inputs if other != input]
    known = [upper for upper in latest if upper is not None]
    return max(known) if len(known) == len(latest) else None


def _optional(top: Join) -> frozenset[int]:
    """The inputs that the left joins of a chain add."""
    return frozenset(i for join in joins_of(top) if join.kind is JoinKind.LEFT for i in join.right.inputs)


def _chain_times(top: Join, columns: Columns) -> tuple[Differences, dict[int, int | None]]:
    """The bounds between the inputs of a chain, and how long a row of each may stay."""
    inputs = [leaf.input.index for leaf in leaves_of(top)]
    differences = _chain_differences(list(joins_of(top)), inputs, _optional(top), columns)
    return differences, _chain_reaches(inputs, differences)


def _chain_differences(
    joins: Sequence[Join], inputs: Sequence[int], optional: Set[int], columns: Columns
) -> Differences:
    """The bounds of each input against those before it that its join states, and against the first one."""
    first, found = inputs[0], Differences()
    for input, join in zip(inputs[1:], joins, strict=True):
        condition = join.condition
        (left, *others), _ = condition.leaders
        if not others:  # otherwise all bounds are loose ones
            found.add(left, input, condition.bounds)
        for i, _, interval in condition.exact:
            found.add(i, input, interval)
        there = {i for pair in condition.keys for i in inputs_of(pair.left, columns)}  # where rows match
        for i, _, interval in condition.loose:
            if i in optional and i not in there:
                found.add_loose(i, input, interval)
            else:
                found.add(i, input, interval)
        for i in inputs[1 : inputs.index(input)]:
            through = found.get(first, i).plus(found.get(i, input))
            if not through.is_free:
                found.add(first, input, through)
    return found


def _chain_reaches(inputs: Sequence[int], differences: Differences) -> dict[int, int | None]:
    """How far behind the frontier a row of each input may still be in a new result.

    A row of the first input is in no new result once the last of its windows is over; one of another input, once this
    is so for the latest row of the first input that it may match.
    """
    first, *others = inputs
    last = _reach(first, inputs, differences)
    reaches = {first: last}
    for other in others:
        lower = differences.get(first, other).lower
        reaches[other] = None if last is None or lower is None else max(last, 0) - lower
    return reaches


# -- keys ----------------------------------------------------------------------------------------------------------


def _holds_where_padded(key: CommonKey, joins: Sequence[Join], columns: Columns) -> bool:
    """Whether each join states by itself that its input has the key, whatever other inputs a row lacks.

    A null-safe comparison would match NULLs of an input that a row lacks with rows of other buckets.
    """
    chosen = _operands_of(key, columns)
    return not key.null_safe and all(
        any(chosen.issuperset(_operands(pair, columns)) for pair in join.condition.keys) for join in joins
    )


def _is_implied(pair: tuple[_Operand, _Operand], common: Set[_Operand], optional: Set[int]) -> bool:
    """Whether the common keys imply an equality: not where it compares with an input that a row may lack."""
    left, _ = pair
    return common >= set(pair) and left.input not in optional


@dataclass(frozen=True, slots=True)
class _Operand:
    """An expression over one input as a key of one type; equal operands are one."""

    input: int
    text: str
    type: str
    null_safe: bool


def _common_keys(
    inputs: Sequence[int], pairs: Sequence[KeyPair], columns: Columns
) -> tuple[tuple[CommonKey, ...], tuple[KeyPair, ...]]:
    """The keys that all inputs share, and the equalities that these do not imply."""
    classes: dict[_Operand, list[_Operand]] = {}  # by operand: those equal to it, a list that they share
    expressions: dict[_Operand, exp.Expr] = {}
    types: dict[_Operand, exp.DataType] = {}
    for pair in pairs:
        left, right = _operands(pair, columns)
        for operand, expression in ((left, pair.left), (right, pair.right)):
            expressions.setdefault(operand, expression)
            types.setdefault(operand, pair.type)
            classes.setdefault(operand, [operand])
        if classes[left] is not classes[right]:
            joined = classes[left] + classes[right]
            for operand in joined:
                classes[operand] = joined
    keys, chosen = [], set()
    for members in {id(each): each for each in classes.values()}.values():
        of_input = {member.input: member for member in reversed(members)}
        if len(of_input) == len(inputs):
            first = of_input[inputs[0]]
            keys.append(
                CommonKey(tuple(expressions[of_input[input]] for input in inputs), types[first], first.null_safe)
            )
            chosen |= set(of_input.values())
    return tuple(keys), tuple(pair for pair in pairs if not chosen.issuperset(_operands(pair, columns)))


def _operands(pair: KeyPair, columns: Columns) -> tuple[_Operand, _Operand]:
    left, right = (_operand(side, pair.type, pair.null_safe, columns) for side in (pair.left, pair.right))
    return left, right


def _operands_of(key: CommonKey, columns: Columns) -> set[_Operand]:
    return {_operand(expression, key.type, key.null_safe, columns) for expression in key.expressions}


def _operand(expression: exp.Expr, type: exp.DataType, null_safe: bool, columns: Columns) -> _Operand:
    (input,) = inputs_of(expression, columns)
    return _Operand(input, expression.sql(dialect="spark"), type.sql(dialect="spark"), null_safe)
