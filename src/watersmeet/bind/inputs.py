"""The inputs of a query and their columns, collected while its names are resolved."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from watersmeet.bind.scope import Relation
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.errors import CatalogError, did_you_mean
from watersmeet.expressions.positions import position_of
from watersmeet.plan.logical.tree import Input, InputColumn, Leaf

Streams = Mapping[str, StreamDef]


class Inputs:
    """The uses of streams in a query, numbered in the order of the text."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.inputs: list[Input] = []
        self.columns: dict[str, InputColumn] = {}

    def add(self, table: exp.Table, alias: str) -> tuple[Leaf, Relation]:
        """Add a use of a stream; return its leaf and its columns in scope.

        Raises ``CatalogError`` if there is no such stream.
        """
        stream = self._streams.get(table.name.lower())
        position = position_of(table)
        if stream is None:
            known = [stream.name for stream in self._streams.values()]
            raise CatalogError(
                f"there is no stream {table.name}", hint=did_you_mean(table.name, known), position=position
            )
        input = Input(len(self.inputs), self._unique(alias), stream, position)
        self.inputs.append(input)
        types = {column.name: exp.DataType.build(column.type, dialect="spark") for column in stream.columns}
        # the delta describes the change; it is not a value of the row
        columns = {name: self._column(input, name, type) for name, type in types.items() if name.lower() != TP_DELTA}
        hidden = {
            name: self._column(input, name, exp.DataType.build(type, dialect="spark"))
            for name, type in stream.hidden.items()
        }
        if not stream.outside:
            hidden[TP_DELTA] = exp.column(exp.to_identifier(TP_DELTA, quoted=True))
        return Leaf(input), Relation(alias, columns, hidden)

    def replace(self, leaf: Leaf) -> None:
        """Replace an input (VERSIONED ON names another event time)."""
        self.inputs[leaf.input.index] = leaf.input

    def _unique(self, alias: str) -> str:
        taken = {input.alias for input in self.inputs}
        while alias in taken:
            alias += "'"
        return alias

    def _column(self, input: Input, column: str, type: exp.DataType) -> exp.Expr:
        name = input.physical(column)
        self.columns[name] = InputColumn(name, input.index, column, type)
        return exp.column(exp.to_identifier(name, quoted=True))
