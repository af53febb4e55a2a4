"""Names in scope: relations by alias, whose columns are expressions over physical columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, did_you_mean
from watersmeet.expressions.positions import position_of


@dataclass(slots=True)
class Relation:
    """The columns of an alias; names are case-insensitive. A star does not expand to ``hidden`` columns."""

    alias: str
    columns: dict[str, exp.Expr]
    hidden: dict[str, exp.Expr] = field(default_factory=dict)

    def find(self, name: str) -> exp.Expr | None:
        """Return the expression of a column; None if there is none of that name."""
        for candidates in (self.columns, self.hidden):
            for known, expression in candidates.items():
                if known.lower() == name.lower():
                    return expression
        return None


@dataclass(slots=True)
class Scope:
    """The relations of one FROM; ``outer`` is the scope around a correlated subquery."""

    relations: list[Relation] = field(default_factory=list)
    outer: Scope | None = None

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
        known = [column for relation in self._all() for column in relation.columns]
        raise BindError(f"there is no column {name} here", hint=did_you_mean(name, known), position=position)

    def has(self, column: exp.Column) -> bool:
        """Whether a column name means something here; ``BindError`` if it is ambiguous."""
        return self._resolve(column) is not None

    def _resolve(self, column: exp.Column) -> exp.Expr | None:
        if column.table:
            relation = self.relation(column.table)
            found = relation.find(column.name) if relation else None
            if relation is not None or self.outer is None:
                return found
        else:
            hits = [
                (relation.alias, hit) for relation in self.relations if (hit := relation.find(column.name)) is not None
            ]
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

    def substitute(self, expression: exp.Expr) -> exp.Expr:
        """Return a copy of the expression with every column resolved.

        Raises ``BindError`` for PROCTIME(): results must not depend on when a query runs.
        """
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

        return expression.copy().transform(replace, copy=False)

    def _all(self) -> list[Relation]:
        return [*self.relations, *(self.outer._all() if self.outer else [])]

    def _aliases(self) -> list[str]:
        return [relation.alias for relation in self._all()]

    def _relation_anywhere(self, alias: str) -> Relation | None:
        return self.relation(alias) or (self.outer._relation_anywhere(alias) if self.outer else None)
