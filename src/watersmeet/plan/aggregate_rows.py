"""The rows that an aggregate, window functions or sessions read, and how what it needs of them gets there.

A key or an argument that reads one stream is computed at its source, as keys of joins are; what reads several is
computed by the operator, as far as DuckDB may evaluate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from watersmeet.columns import TIME
from watersmeet.engine.keys import HashedKeys, KeyColumn
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import bare, plain_sql
from watersmeet.kernels.aggregate.functions import same_float
from watersmeet.kernels.api import quote
from watersmeet.plan.across_sides import ALLOWED_NAMES, carry_one_sided, first_refused, is_strict, render
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.query import GroupKey
from watersmeet.plan.logical.tree import Node, nullable, timed
from watersmeet.plan.sources import Sources, quoted_column


@dataclass(slots=True)
class AggregateRows:
    """The rows of ``root``; ``needed`` collects the columns that must travel.

    ``dated_by`` is the input whose event time dates the rows, where one must.
    """

    root: Node
    sources: Sources
    dated_by: int | None = None
    needed: set[str] = field(default_factory=set)
    _at_sources: dict[tuple[int, exp.Expr], str] = field(default_factory=dict)

    @property
    def lead(self) -> str:
        """The physical name of the event time that arrives as ``$t``."""
        chosen = min(timed(self.root)) if self.dated_by is None else self.dated_by
        return self.sources.inputs[chosen].time_name

    def sql(self, expression: exp.Expr, kind: exp.DataType) -> str:
        """DuckDB SQL of an expression over the rows, in its type.

        Raises ``UnsupportedError`` for a function across streams that DuckDB may not evaluate.
        """
        sources = self.sources
        if isinstance(expression, exp.Column) and sources.carried_name(expression) == expression.name:
            found = expression.name
        elif (input := self.source_of(expression)) is not None:
            known = (input, bare(expression))
            if known not in self._at_sources:
                self._at_sources[known] = sources.compute(input, exp.cast(expression.copy(), kind))
            found = self._at_sources[known]
        else:
            padded = nullable(self.root)
            carried = carry_one_sided(expression, sources.columns, padded, sources.compute, external=sources.external)
            if first_refused(carried) is not None:
                raise _not_across(carried)
            self.needed |= {sources.carried_name(column) for column in carried.find_all(exp.Column)}
            value = render(carried, lambda name: sources.value(name, self._time))
            return f"CAST({value} AS {kind.sql(dialect='duckdb')})"
        self.needed.add(found)
        return quote(found)

    def column(self, name: str) -> str:
        """SQL of a column that travels, under the name that it travels under."""
        self.needed.add(name)
        return quote(TIME if name == self.lead else name)

    def time(self, input: int) -> str:
        """SQL of an input's internal event time."""
        self.needed.add(self.sources.inputs[input].time_name)
        return self._time(input).sql(dialect="duckdb")

    def _time(self, input: int) -> exp.Column:
        name = self.sources.inputs[input].time_name
        return quoted_column(TIME if name == self.lead else name)

    def source_of(self, expression: exp.Expr) -> int | None:
        """The input at whose source an expression can be computed; None where it needs the operator."""
        read = inputs_of(expression, self.sources.columns)
        if len(read) != 1 or read & self.sources.external:
            return None
        (input,) = read
        return None if input in nullable(self.root) and not is_strict(expression) else input

    def keys(self, keys: Sequence[GroupKey]) -> tuple[tuple[str, str, pa.DataType], ...]:
        """Keys as a kernel has them: name, SQL over the rows, type."""
        found = []
        for key in keys:
            kind = arrow_type(key.type)
            found.append((key.name, same_float(self.sql(key.expression, key.type), kind), kind))
        return tuple(found)

    def route(self, name: str, keys: Sequence[GroupKey]) -> tuple[tuple[str, ...], HashedKeys]:
        """The hash columns that choose the bucket of a key's rows, and the stored columns that each is made of."""
        found = self.hashed(name, [key.expression for key in keys])
        made = (
            tuple(KeyColumn((keys[place].name,), arrow_type(kind)) for place, kind in parts) for parts in found.values()
        )
        return tuple(found), tuple(made)

    def conditions(self, conditions: Sequence[exp.Expr]) -> str | None:
        """Conditions on the rows as one, in SQL; None if there are none."""
        return " AND ".join(self.sql(each, exp.DataType.build("BOOLEAN")) for each in conditions) or None

    def hashed(self, name: str, expressions: Sequence[exp.Expr]) -> dict[str, list[tuple[int, exp.DataType]]]:
        """Hash columns over those expressions that sources can compute, one for each source.

        For each column: the places of its expressions, and their types.
        """
        by_input: dict[int, list[tuple[int, exp.DataType]]] = {}
        for place, expression in enumerate(expressions):
            kind = certain_type(expression, self.sources.columns)
            if kind is not None and (input := self.source_of(expression)) is not None:
                by_input.setdefault(input, []).append((place, kind))
        return {
            self.sources.hash(input, name, [exp.cast(expressions[place].copy(), kind) for place, kind in of_input]): (
                of_input
            )
            for input, of_input in sorted(by_input.items())
        }


def _not_across(expression: exp.Expr) -> UnsupportedError:
    part = first_refused(expression) or expression
    return UnsupportedError(
        f"below an aggregate, {plain_sql(part)} is not supported in what reads several streams, or one whose rows an"
        " outer join may pad",
        detail=f"supported there: {ALLOWED_NAMES}",
        hint="compute it of each stream alone",
        position=position_of(part),
    )
