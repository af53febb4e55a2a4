"""The columns in scope as those of a query, over whose results a generator, or windows that share rows, stand then."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.bind.relations import Relation
from watersmeet.bind.scope import Scope
from watersmeet.columns import TP_DELTA
from watersmeet.plan.logical.query import OutputColumn


def outputs_of(scope: Scope) -> tuple[list[OutputColumn], list[tuple[dict[str, exp.Expr], str, str]]]:
    """The columns in scope as those of a query, and where each belongs: columns of a relation, its name, its output."""
    outputs: list[OutputColumn] = []
    places: list[tuple[dict[str, exp.Expr], str, str]] = []
    taken: set[str] = set()
    for relation in scope.relations:
        for columns in (relation.columns, relation.hidden):
            for name, expression in columns.items():
                if name.lower() == TP_DELTA:  # results have their own
                    continue
                unique = name if name.lower() not in taken else f"{relation.alias}_{name}"
                while unique.lower() in taken:
                    unique += "'"
                taken.add(unique.lower())
                outputs.append(OutputColumn(unique, expression))
                places.append((columns, name, unique))
    return outputs, places


def now_of_results(scope: Scope, places: Sequence[tuple[dict[str, exp.Expr], str, str]], results: Relation) -> None:
    """Have the columns in scope be those of results."""
    for relation in scope.relations:
        relation.fields.clear()
    for columns, name, output in places:
        columns[name] = results.columns[output]
