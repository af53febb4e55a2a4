"""Group inner joins that one operator can compute (kernels/multi_way).

A group is a largest subtree of inner joins over append-only streams, three or more, all of which share a key:

    a.k = b.k AND b.k = c.k        a.k, b.k and c.k are one key, common to all three
    a.k = b.k AND b.j = c.j        no key is common: one join after the other

Equalities of one type are followed over the streams between.  All conditions of the group hold for each of its results,
so bounds between the times of two streams follow from those over a third.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.kernels.api import JoinKind, Side
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
    """The query with its groups marked, as ``multi_join`` says.

    Raises ``PlanError`` if ``multi_join`` is 'on' and there is no group.
    """
    wanted = query.settings.multi_join
    if wanted == "off":
        return query
    grouped = replace(query, root=_grouped(query.root, query.columns))
    if wanted == "on" and all(join.group is None for join in operators_of(grouped.root)):
        raise PlanError(
            "multi_join = 'on', but no joins of this query can run in one operator",
            detail="; ".join(ungrouped(grouped)) or "there are no inner joins of three append-only streams in a row",
            hint="leave it out, or give all of these streams a key in common",
            position=query.text.settings_positions.get("multi_join", query.text.position),
        )
    return grouped


def ungrouped(query: LogicalQuery) -> Iterator[str]:
    """Why inner joins of three streams and more run one after the other, where they do."""
    yield from _ungrouped(query.root, query)


def _ungrouped(node: Node, query: LogicalQuery) -> Iterator[str]:
    if isinstance(node, Leaf) or node.group is not None:
        return
    if _is_inner(node) and len(node.inputs) > 2:
        names = ", ".join(query.inputs[leaf.input.index].alias for leaf in leaves_of(node))
        yield f"{names} have no key of one type in common"
    else:
        yield from _ungrouped(node.left, query)
        yield from _ungrouped(node.right, query)


def _grouped(node: Node, columns: Columns) -> Node:
    if isinstance(node, Leaf):
        return node
    if _is_inner(node) and len(node.inputs) > 2 and (group := _group(node, columns)) is not None:
        lags = {input: None if reach is None else max(reach, 0) for input, reach in group.reaches.items()}
        return replace(node, group=group, condition=replace(node.condition, lags=lags))
    return replace(node, left=_grouped(node.left, columns), right=_grouped(node.right, columns))


def _is_inner(node: Node) -> bool:
    """Whether a subtree has inner joins of append-only streams alone."""
    if isinstance(node, Leaf):
        return not node.input.stream.changes and not node.input.stream.outside
    return (
        node.kind is JoinKind.INNER
        and node.asof is None
        and not node.null_aware
        and _is_inner(node.left)
        and _is_inner(node.right)
    )


def _group(top: Join, columns: Columns) -> JoinGroup | None:
    """The group of all joins at and below ``top``; None if their streams share no key."""
    inputs = tuple(leaf.input.index for leaf in leaves_of(top))
    joins = list(joins_of(top))
    pairs = [pair for join in joins for pair in join.condition.keys]
    keys, others = _common_keys(inputs, pairs, columns)
    if not keys:
        return None
    differences = _differences(joins)
    graces = {leaf.input.index: join.condition.grace for join in joins for leaf in _own_leaves(join)}
    return JoinGroup(
        inputs=inputs,
        keys=keys,
        pairs=others,
        residual=tuple(term for join in joins for term in join.condition.residual),
        differences=differences,
        graces=tuple(graces[input] for input in inputs),
        reaches={input: _reach(input, inputs, differences) for input in inputs},
    )


def _own_leaves(join: Join) -> Iterator[Leaf]:
    for side in Side:
        if isinstance(child := join.child(side), Leaf):
            yield child


def _differences(joins: Sequence[Join]) -> Differences:
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
    def operand(side: exp.Expr) -> _Operand:
        (input,) = inputs_of(side, columns)
        return _Operand(input, side.sql(dialect="spark"), pair.type.sql(dialect="spark"), pair.null_safe)

    return operand(pair.left), operand(pair.right)
