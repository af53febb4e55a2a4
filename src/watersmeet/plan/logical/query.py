"""A whole query, bound: its tree of joins, and what is computed from the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.errors import Position
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.logical.tree import Input, InputColumn, Node, leaves_of
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True)
class Ordering:
    """ORDER BY: the input whose event time comes first, and the columns that break ties (expression, descending)."""

    input: int
    ties: tuple[tuple[exp.Expr, bool], ...]
    position: Position | None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What the rows of a group share; the SELECT list finds it in the column ``name``."""

    name: str
    expression: exp.Expr
    type: exp.DataType


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A function over the rows of a group that meet the ``condition``; ``name`` is the column of its value.

    Without arguments it counts rows; several stand for one value of all of them.  ``type`` is that of the argument,
    ``time`` the input whose event time orders its values, where order counts; ``text`` is the call as written.
    """

    name: str
    function: Function
    arguments: tuple[exp.Expr, ...]
    type: exp.DataType
    condition: exp.Expr | None
    time: int | None
    text: str
    position: Position | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """GROUP BY and the functions, over rows that meet the ``conditions`` (WHERE)."""

    keys: tuple[GroupKey, ...]
    calls: tuple[AggregateCall, ...]
    conditions: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result: its name and its expression over physical columns."""

    name: str
    expression: exp.Expr
    renamed_from: str | None = None


@dataclass(frozen=True, slots=True)
class QueryText:
    """What the query says at its end, and where: for messages about clauses."""

    select: exp.Expr
    position: Position
    emit: EmitMode | None = None
    emit_position: Position | None = None
    settings_positions: Mapping[str, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogicalQuery:
    """A query with every name resolved.

    ``filters`` are conditions over the results: WHERE, or HAVING where there is an ``aggregation`` (which holds WHERE
    then).  Passes move WHERE down the tree as far as it may go.
    """

    root: Node
    columns: Mapping[str, InputColumn]
    outputs: tuple[OutputColumn, ...]
    filters: tuple[exp.Expr, ...]
    ordering: Ordering | None
    aggregation: Aggregation | None
    settings: QuerySettings
    text: QueryText

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs, in the order in which the text names them; an input's index is its place here."""
        return tuple(sorted((leaf.input for leaf in leaves_of(self.root)), key=lambda input: input.index))
