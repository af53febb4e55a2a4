"""One join of FROM: its kind, its clauses, its condition, and the columns that it leaves in scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.asof import AsofBinder
from watersmeet.bind.conditions import bind_condition, bind_on, is_null
from watersmeet.bind.inputs import Inputs
from watersmeet.bind.relations import Relation
from watersmeet.bind.scope import Scope
from watersmeet.bind.shared_columns import SharedColumn, common_names, side_column, united, visible
from watersmeet.errors import BindError, UnsupportedError, did_you_mean
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.nodes import SystemTime
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.times import in_units, interval_micros
from watersmeet.kernels.api import Side
from watersmeet.plan.across_sides import is_strict
from watersmeet.plan.logical.conditions import conjuncts
from watersmeet.plan.logical.tree import Grace, Input, Join, JoinCondition, Leaf, Node, Within, nullable, timed


def bind_join(
    node: Join,
    join: exp.Join,
    version: SystemTime | None,
    before: Sequence[Relation],
    scope: Scope,
    names: Inputs,
) -> Join:
    """Resolve the clauses and the condition of a join; afterwards the scope holds the columns that it returns.

    ``node`` has the sides as written. ``before`` are the relations of the left side; those of the right one
    follow them in scope. ``version`` is the join's FOR SYSTEM_TIME AS OF.
    """
    within = _within(join.args.get("within"))
    inputs = [names.inputs[i] for i in sorted(node.inputs)]
    clauses = (("GRACE PERIOD", "grace"), ("ALLOWED LATENESS", "lateness"))
    grace = Grace(*(_duration(name, join.args.get(key), inputs) for name, key in clauses))
    node = replace(node, within=within, grace=grace)
    node = _as_of(node, join.args.get("match_condition"), version, scope, names)
    conditions = [bind_on(term, scope) for term in conjuncts(join.args.get("on"))]
    pairs = _pairs(join, scope, before, names)
    conditions += [exp.EQ(this=left.expression.copy(), expression=right.expression.copy()) for left, right in pairs]
    node = replace(node, condition=JoinCondition(residual=tuple(conditions)))
    if node.mirrored:
        node = replace(node, left=node.right, right=node.left)
    _update_scope(node, scope, before, names.inputs, pairs)
    return node


def _pairs(
    join: exp.Join, scope: Scope, before: Sequence[Relation], names: Inputs
) -> list[tuple[SharedColumn, SharedColumn]]:
    """The columns of USING or NATURAL on both sides."""
    added = scope.relations[len(before) :]
    using = join.args.get("using") or ()
    if join.method.upper() == "NATURAL":
        sides = [visible(side, [each for each in scope.shared if each.within(side)]) for side in (before, added)]
        using = common_names(join, sides[0], sides[1], names.inputs, names.columns)
    right = added[0].alias if len(added) == 1 else "the right side"
    return [
        (side_column(name, before, scope.shared, "the left side"), side_column(name, added, scope.shared, right))
        for name in using
    ]


def _within(clause: exp.Expr | None) -> Within | None:
    if clause is None:
        return None
    return Within(interval_micros(clause.this), interval_micros(clause.expression), position_of(clause))


def _duration(name: str, clause: exp.Expr | None, inputs: Iterable[Input]) -> int:
    """Return the length of a GRACE PERIOD or an ALLOWED LATENESS in microseconds."""
    if clause is None:
        return 0
    for input in inputs:
        if input.time.unit is TimeUnit.ROWS:
            raise UnsupportedError(
                f"{name} is a duration, but {input.alias} counts rows",
                hint="declare a larger delay: WATERMARK FOR sn AS sn - 10",
                position=position_of(clause),
            )
    span = interval_micros(clause)
    if span < 0:
        raise UnsupportedError(f"{name} cannot be negative", position=position_of(clause))
    return span


# -- joins as of a time ----------------------------------------------------------------------------------------------


def _as_of(node: Join, match: exp.Expr | None, version: SystemTime | None, scope: Scope, names: Inputs) -> Join:
    """Return the join with its MATCH_CONDITION or FOR SYSTEM_TIME AS OF, if it has one."""
    if match is None and version is None:
        return node
    binder = AsofBinder(node, names.inputs, names.columns, of_table=version is not None)
    if match is not None:
        clause = binder.match_condition(bind_condition(match, scope))
    else:
        assert version is not None
        version = _versioned_on(version, scope.relations[-1], binder.right, names)
        clause = binder.system_time(version, _system_time(version, scope, binder.right.time.unit))
    right = Leaf(binder.right)
    names.replace(right)
    return replace(node, right=right, asof=clause)


def _system_time(version: SystemTime, scope: Scope, unit: TimeUnit) -> exp.Expr | None:
    """Resolve the operand of FOR SYSTEM_TIME AS OF, a time in the ``unit`` of the versions; None for PROCTIME()."""
    time = version.expression
    if isinstance(time, exp.Anonymous) and time.name.upper() == "PROCTIME" and not time.expressions:
        return None
    try:
        return scope.substitute(in_units(time, unit) if unit.is_integer else time)
    except BindError as error:
        if isinstance(time, exp.Column) and time.name.upper() == "PROCTIME":
            error.hint = "for the current version write PROCTIME()"
        raise


def _versioned_on(version: SystemTime, relation: Relation, right: Input, names: Inputs) -> SystemTime:
    """FOR SYSTEM_TIME AS OF with the declared column that VERSIONED ON names: a query may give it another name.

    Raises ``BindError`` for a name that the relation lacks, ``UnsupportedError`` for a computed column, and for a
    column by which a versioned view does not keep the newest row.
    """
    named = version.args.get("versioned_on")
    if named is None:
        return version
    position, found = position_of(named) or position_of(version), relation.find(named.name)
    if found is None:
        raise BindError(
            f"VERSIONED ON {named.name}: {relation.alias} has no such column",
            hint=did_you_mean(named.name, list(relation.columns)),
            position=position,
        )
    known = names.columns.get(found.name) if isinstance(found, exp.Column) else None
    if known is None:
        raise UnsupportedError(
            f"VERSIONED ON {named.name}: it is computed, and the time of versions is a column of a stream",
            hint="compute it in a CREATE STREAM … AS first",
            position=position,
        )
    if right.versions_of is not None and right.results is None and not right.is_time(known.column):
        raise UnsupportedError(
            f"VERSIONED ON {named.name}: {relation.alias} keeps the newest row by {right.time.column}",
            hint=f"leave it out; or declare WATERMARK FOR {known.column} …, and let the view order by it",
            position=position,
        )
    resolved = version.copy()
    resolved.args["versioned_on"].set("this", known.column)
    return resolved


# -- columns of the results ------------------------------------------------------------------------------------------


def _update_scope(
    node: Join,
    scope: Scope,
    before: Sequence[Relation],
    inputs: Sequence[Input],
    pairs: Sequence[tuple[SharedColumn, SharedColumn]],
) -> None:
    """Keep the relations in scope whose columns the join returns, with their values on padded rows.

    ``pairs`` are the columns of both sides of which it makes one.
    """
    added = scope.relations[len(before) :]
    if not node.kind.pairs:
        scope.relations[:] = added if node.mirrored else before
        scope.shared[:] = [each for each in scope.shared if each.within(scope.relations)]
        return
    parts = [each for pair in pairs for each in pair]
    others = [each for each in scope.shared if not any(each is part for part in parts)]
    scope.shared[:] = [*(united(node.kind, left, right, before[0]) for left, right in pairs), *others]
    for side, relations in ((Side.LEFT, before), (Side.RIGHT, added)):
        if node.kind.pads(side):
            for relation in relations:
                _pad(relation, node.child(side), inputs)


def _pad(relation: Relation, child: Node, inputs: Sequence[Input]) -> None:
    """Make computed columns of a relation NULL on padded rows, like its other columns."""
    certain = sorted(timed(child) - nullable(child)) or sorted(timed(child))
    there = [exp.Not(this=is_null(_event_time(inputs[i]))) for i in certain]
    for name, expression in relation.columns.items():
        if not is_strict(expression):
            if not there:
                raise UnsupportedError(
                    f"{relation.alias}.{name} is computed from columns of an external table, and might not be NULL"
                    " where the table has no row",
                    hint="compute it in the outermost SELECT",
                    position=position_of(expression),
                )
            relation.columns[name] = exp.Case(ifs=[exp.If(this=exp.or_(*there, copy=True), true=expression)])


def _event_time(input: Input) -> exp.Expr:
    """Return the event-time column of an input; it is NULL only on padded rows."""
    return exp.column(exp.to_identifier(input.physical(input.time.column), quoted=True))
