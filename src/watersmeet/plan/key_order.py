"""Whether the changes of a target's key have an order: all come from one bucket, or no key has several rows in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from watersmeet.catalog.streams import StreamDef
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.plan.operators.aggregate import AggregateOperator
from watersmeet.plan.operators.over import OverOperator
from watersmeet.plan.physical_plan import PhysicalOperator, PhysicalPlan


def keeps_order(plan: PhysicalPlan, target: StreamDef, columns: Sequence[str]) -> bool:
    """Whether all changes of a key of the target come from one bucket, in which they have an order.

    ``columns`` are those of the target that the query fills (empty: all).
    """
    wanted = [name.lower() for name in columns or [column.name for column in target.columns]]
    declared = {column.name.lower(): column.type for column in target.columns}
    key = {name.lower() for name in target.primary_key}
    # the rows are cast to the types that the target declares
    written = [
        exp.cast(each.expression.copy(), declared[name], dialect="spark")
        for name, each in zip(wanted, plan.outputs, strict=False)
        if name in key
    ]
    return _has_order(plan, written)


def _has_order(plan: PhysicalPlan, key: Sequence[exp.Expr]) -> bool:
    """Whether all changes of rows with the same values of ``key``, over a query's results, have an order."""
    last = plan.operators[-1]
    if not plan.weighted:
        return True
    appended = len(plan.operators) == 1 and not any(part.input.changes for part in plan.inputs)
    if appended and not isinstance(last, AggregateOperator):
        return True  # each row stays in the bucket where it came first; groups may give a row of one key in turn
    types = _types(plan)
    chosen = [_kept_apart(each, types) for each in key]
    if not last.single_bucket and not any(
        all(_is_chosen(part, chosen) for part in parts) for parts in _divided_by(plan, last)
    ):
        return False
    if _gives_one_row(last, chosen):
        return True
    # a join passes on changes in the order in which they come: they must have had one before
    for part in plan.own_inputs:
        if part.input.changes:
            if len(part.branches) > 1:
                return False  # a row that moves from one branch of a UNION to another may come before it has gone
            names = {part.input.declared(each.name): each for each in chosen if isinstance(each, exp.Column)}
            own = [name for name, each in names.items() if part.input.physical(name) == each.name]
            for branch in part.branches:
                outputs = zip(part.input.stream.columns, branch.plan.outputs, strict=True)
                if not _has_order(branch.plan, [each.expression for column, each in outputs if column.name in own]):
                    return False
    return True


def _gives_one_row(operator: PhysicalOperator, chosen: Sequence[exp.Expr]) -> bool:
    """Whether an operator makes all changes itself, of one row for the values chosen: a group, or a place in order."""
    if isinstance(operator, AggregateOperator):
        return True
    if not isinstance(operator, OverOperator):
        return False
    over, (first, *_) = operator.over, operator.over.calls
    is_first = over.limit is not None and over.limit - over.skipped == 1 and first.function == "row_number"
    numbers = (exp.column(each.name, quoted=True) for each in over.calls if each.function == "row_number")
    is_placed = is_first or any(each in chosen for each in numbers)
    return is_placed and all(_is_chosen(key.expression, chosen) for key in over.partition)


def _divided_by(plan: PhysicalPlan, last: PhysicalOperator) -> Sequence[Sequence[exp.Expr]]:
    """The columns that choose the bucket of a row, for each input; the groups of an aggregate."""
    groups = [exp.column(name, quoted=True) for name in last.output if name.startswith("$g")]
    if groups:
        return [groups]
    keys = {name: list(parts) for part in plan.inputs for name, parts in part.hashes.items()}
    return [[part for name in names for part in keys[name]] for names in last.routed_by if names]


def _is_chosen(expression: exp.Expr, chosen: Sequence[exp.Expr]) -> bool:
    """Whether the values chosen say what the expression is: it is one of them, or a cast of one."""
    return expression in chosen or (isinstance(expression, exp.Cast) and expression.this in chosen)


def _kept_apart(expression: exp.Expr, types: Mapping[str, pa.DataType]) -> exp.Expr:
    """The expression without casts of columns under which different values stay different; other casts merge keys."""
    if not isinstance(expression, exp.Cast):
        return expression
    inner = _kept_apart(expression.this, types)
    given, wanted = types.get(inner.name) if isinstance(inner, exp.Column) else None, arrow_type(expression.to)
    if given is None:
        return expression
    # a number that does not fit is an error, or NULL, which no key can be
    whole = pa.types.is_integer(given) and pa.types.is_integer(wanted)
    shown = pa.types.is_string(wanted) and (pa.types.is_integer(given) or pa.types.is_date(given))
    return inner if given == wanted or whole or shown else expression


def _types(plan: PhysicalPlan) -> dict[str, pa.DataType]:
    """The types of columns: those that the inputs declare, and those that operators add."""
    declared = {
        part.input.physical(column.name): arrow_type(exp.DataType.build(column.type, dialect="spark"))
        for part in plan.inputs
        for column in part.input.stream.columns
    }
    added = {name: kind for operator in plan.operators for name, kind in operator.added_types.items()}
    return {**declared, **added}
