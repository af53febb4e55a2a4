"""Columns of USING and NATURAL: one for both sides of a join, as in the SQL standard.

Its value is the left side's of INNER and LEFT, the right side's of RIGHT, and the first that is not NULL of FULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.bind.relations import Relation
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.api import JoinKind, Side
from watersmeet.plan.logical.tree import Input, InputColumn


@dataclass(frozen=True, slots=True)
class SharedColumn:
    """A column that several relations share.

    ``covered`` are these relations, ``values`` those of them whose value it may have, in their order.  A star has it
    before the columns of ``before``, the first relation of the join.
    """

    name: str
    values: tuple[Relation, ...]
    covered: tuple[Relation, ...]
    before: Relation

    def covers(self, relation: Relation) -> bool:
        """Whether the column stands for that of a relation."""
        return any(each is relation for each in self.covered)

    def within(self, relations: Sequence[Relation]) -> bool:
        """Whether all that share it are among these."""
        return all(any(each is relation for relation in relations) for each in self.covered)

    @property
    def alias(self) -> str:
        """The relation that has it first."""
        return self.values[0].alias

    @property
    def expression(self) -> exp.Expr:
        """Its value, of what its relations have now: a later join may pad them."""
        found = [part for relation in self.values if (part := relation.find(self.name)) is not None]
        if len(found) == 1:
            return found[0]
        first, *others = (part.copy() for part in found)
        return exp.Coalesce(this=first, expressions=others)


def side_column(
    name: exp.Identifier, relations: Sequence[Relation], shared: Sequence[SharedColumn], side: str
) -> SharedColumn:
    """A column of one side of a join; of several the first.  Raises ``BindError`` where there is none."""
    for each in shared:
        if each.name.lower() == name.name.lower() and each.within(relations):
            return each
    found = next((relation for relation in relations if relation.find(name.name) is not None), None)
    if found is None:
        raise BindError(f"USING ({name.name}): {side} has no such column", position=position_of(name))
    return SharedColumn(name.name, (found,), (found,), found)


def united(kind: JoinKind, left: SharedColumn, right: SharedColumn, before: Relation) -> SharedColumn:
    """The column that a join makes of one of each side."""
    pads_left, pads_right = kind.pads(Side.LEFT), kind.pads(Side.RIGHT)
    values = (*left.values, *right.values) if pads_left and pads_right else right.values if pads_left else left.values
    return SharedColumn(left.name, values, (*left.covered, *right.covered), before)


def visible(relations: Sequence[Relation], shared: Sequence[SharedColumn]) -> list[tuple[str, str, exp.Expr]]:
    """What a star stands for: each column with its alias, those that relations share once."""
    found: list[tuple[str, str, exp.Expr]] = []
    for relation in relations:
        if relation.is_apart:
            continue
        found += [(each.name, each.alias, each.expression) for each in shared if each.before is relation]
        hidden = {each.name.lower() for each in shared if each.covers(relation)}
        found += [
            (name, relation.alias, column) for name, column in relation.columns.items() if name.lower() not in hidden
        ]
    return found


# -- NATURAL -----------------------------------------------------------------------------------------------------------


def common_names(
    join: exp.Join,
    left: Sequence[tuple[str, str, exp.Expr]],
    right: Sequence[tuple[str, str, exp.Expr]],
    inputs: Sequence[Input],
    columns: dict[str, InputColumn],
) -> list[exp.Identifier]:
    """The columns of NATURAL JOIN: those that both sides have, in the order of the left one.

    Raises ``BindError`` where there is none or a side has two of a name, ``UnsupportedError`` for an event time: equal
    ones are rarely meant.
    """
    position = position_of(join)
    names = [name for name, _, _ in left if name.lower() in {other.lower() for other, _, _ in right}]
    if not names:
        listed = [", ".join(name for name, _, _ in side) for side in (left, right)]
        raise BindError(
            "NATURAL JOIN: the sides have no column in common",
            detail=f"left: {listed[0]}; right: {listed[1]}",
            hint="name the condition with ON",
            position=position,
        )
    for side in (left, right):
        for name in names:
            having = [alias for other, alias, _ in side if other.lower() == name.lower()]
            if len(having) > 1:
                raise BindError(
                    f"NATURAL JOIN: column {name} is ambiguous",
                    detail=f"it is in {' and in '.join(having)}",
                    hint="name the condition with ON",
                    position=position,
                )
    times = {
        name.lower()
        for name, _, column in (*left, *right)
        if (known := columns.get(column.name) if isinstance(column, exp.Column) else None) is not None
        and inputs[known.input].is_timed
        and inputs[known.input].is_time(known.column)
    }
    common_times = [name for name in names if name.lower() in times]
    if common_times:
        others = [name for name in names if name.lower() not in times]
        hint = f"write USING ({', '.join(others)}) if they need not be" if others else "name the condition with ON"
        raise UnsupportedError(
            f"NATURAL JOIN would ask for equal event times: both sides have {', '.join(common_times)}",
            hint=f"{hint}; for equal times, USING ({', '.join(names)})",
            position=position,
        )
    return [exp.to_identifier(name) for name in dict.fromkeys(names)]
