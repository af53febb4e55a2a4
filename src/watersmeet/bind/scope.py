"""Names in scope: relations by alias, whose columns are expressions over physical columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.bind.generators import refuse_generators
from watersmeet.bind.relations import Relation
from watersmeet.bind.shared_columns import SharedColumn, visible
from watersmeet.bind.time_units import with_numbers
from watersmeet.bind.zips import with_named_zips
from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, did_you_mean
from watersmeet.expressions.explodes import fields_of
from watersmeet.expressions.positions import position_of


@dataclass(slots=True)
class Scope:
    """The relations of one FROM, and columns that they share; ``outer`` is the scope around a correlated subquery."""

    relations: list[Relation] = field(default_factory=list)
    outer: Scope | None = None
    shared: list[SharedColumn] = field(default_factory=list)

    def visible(self) -> list[tuple[str, str, exp.Expr]]:
        """What a star stands for: columns with the alias of each."""
        return visible(self.relations, self.shared)

    def relation(self, alias: str) -> Relation | None:
        """Return the relation of an alias in this FROM."""
        return next((each for each in self.relations if each.alias.lower() == alias.lower()), None)

    def resolve(self, column: exp.Column) -> exp.Expr:
        """Return the expression of a column name; ``BindError`` if it is unknown or ambiguous."""
        found = self._resolve(column)
        if found is not None:
            return found
        name, table = column.name, column.table
        position = position_of(column)
        if table:
            relation = self._relation_anywhere(table)
            if relation is None:
                raise BindError(
                    f"there is no stream or alias {table} here",
                    hint=did_you_mean(table, self._aliases()),
                    position=position,
                )
            raise BindError(
                f"{table} has no column {name}",
                hint=did_you_mean(name, [*relation.columns, *relation.hidden]),
                position=position,
            )
        known = [column for relation in self._all() if not relation.is_apart for column in relation.columns]
        raise BindError(f"there is no column {name} here", hint=did_you_mean(name, known), position=position)

    def has(self, column: exp.Column) -> bool:
        """Whether a column name means something here; ``BindError`` if it is ambiguous."""
        return self._resolve(column) is not None

    def _resolve(self, column: exp.Column) -> exp.Expr | None:
        if column.table:
            relation = self.relation(column.table)
            found = relation.find(column.name) if relation and not column.db else None
            if found is None:
                found = self._field(column)
            if found is not None or relation is not None or self.outer is None:
                return found
        else:
            hits = self._hits(column.name)
            if len(hits) > 1 and column.name.lower() != TP_DELTA:  # the results of a join have one delta
                raise BindError(
                    f"column {column.name} is ambiguous",
                    detail=f"it is in {' and in '.join(alias for alias, _ in hits)}",
                    hint=f"write {hits[0][0]}.{column.name}",
                    position=position_of(column),
                )
            if hits:
                return hits[0][1]
        return self.outer._resolve(column) if self.outer is not None else None

    def _hits(self, name: str) -> list[tuple[str, exp.Expr]]:
        """The columns of a name, each with the alias of its relation."""
        shared = [each for each in self.shared if each.name.lower() == name.lower()]
        others = [
            relation
            for relation in self.relations
            if not relation.is_apart and not any(each.covers(relation) for each in shared)
        ]
        return [
            *((each.alias, each.expression) for each in shared),
            *((relation.alias, hit) for relation in others if (hit := relation.find(name)) is not None),
        ]

    def _field(self, column: exp.Column) -> exp.Expr | None:
        """A field of a struct, as in ``item.price`` or ``t.item.price``; None where there is no such struct."""
        names = [part.name for part in column.parts]
        relation = self.relation(names[0]) if len(names) > 2 else None
        if relation is not None:
            alias, name, *fields = names
            found = relation.find(name)
        else:
            name, *fields = names
            hits = self._hits(name)
            found = hits[0][1] if len(hits) == 1 else None
            alias = hits[0][0] if found is not None else ""
            relation = self.relation(alias)
        for place, wanted in enumerate(fields):
            known = dict(fields_of(found.type)) if found is not None and found.type is not None else {}
            if found is None or not known:
                return None
            spelt = next((each for each in known if each.lower() == wanted.lower()), None)
            if spelt is None:
                raise BindError(
                    f"{'.'.join(names[: len(names) - len(fields) + place])} has no field {wanted}",
                    hint=did_you_mean(wanted, list(known)),
                    position=position_of(column),
                )
            own = relation.fields.get((name.lower(), spelt.lower())) if relation is not None and place == 0 else None
            if own is not None:
                found = own
            else:
                found = exp.Dot(this=found.copy(), expression=exp.to_identifier(spelt, quoted=True))
                found.type = known[spelt] if known[spelt].is_type(exp.DataType.Type.STRUCT) else None
        return found

    def substitute(self, expression: exp.Expr) -> exp.Expr:
        """Return a copy of the expression with every column resolved, and intervals as numbers where times are.

        Raises ``BindError`` for PROCTIME(): results must not depend on when a query runs; for a generator; and for an
        interval beside a number that is no time.
        """
        refuse_generators(expression)
        for call in expression.find_all(exp.Anonymous):
            if call.name.upper() == "PROCTIME":
                raise BindError(
                    "PROCTIME() is allowed only in FOR SYSTEM_TIME AS OF PROCTIME()",
                    hint="for a row's arrival time use its column _tp_time",
                    position=position_of(call),
                )

        def replace(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            found = self.resolve(node).copy()
            found.meta.update({key: value for key, value in node.meta.items() if key in ("line", "col")})
            if "line" not in found.meta and (position := position_of(node)) is not None:
                found.meta.update(line=position.line, col=position.col)
            return exp.paren(found, copy=False) if isinstance(found, exp.Binary | exp.Unary) else found

        return with_numbers(with_named_zips(expression).transform(replace, copy=False))

    def _all(self) -> list[Relation]:
        return [*self.relations, *(self.outer._all() if self.outer else [])]

    def _aliases(self) -> list[str]:
        return [relation.alias for relation in self._all() if not relation.is_apart]

    def _relation_anywhere(self, alias: str) -> Relation | None:
        return self.relation(alias) or (self.outer._relation_anywhere(alias) if self.outer else None)
