"""The inputs of a query and their columns, collected while its names are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from watersmeet.bind.relations import Relation
from watersmeet.bind.time_units import counting, unit_of
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.errors import CatalogError, Position, did_you_mean
from watersmeet.expressions.event_time import EventTime, TimeUnit
from watersmeet.expressions.explodes import Explode, element_type, fields_of
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.windows import Window, WindowBound
from watersmeet.plan.logical.tree import Input, InputColumn, Leaf, Results, window_column

Streams = Mapping[str, StreamDef]
_Added: TypeAlias = tuple[Leaf, Relation]


#: What follows the alias in the hidden columns of an exploded array whose names the text does not give.
POSITION, ELEMENT = "$position", "$element"


@dataclass(frozen=True, slots=True)
class Exploded:
    """The columns of an array's elements: their positions from 0, the elements, and their fields."""

    position: exp.Expr
    element: exp.Expr
    fields: Mapping[str, exp.Expr]


#: How many inputs there are, the names of their columns, and the aliases of the statement.
InputsState: TypeAlias = tuple[int, frozenset[str], frozenset[str]]


class Inputs:
    """The uses of streams in a query, numbered in the order of the text."""

    def __init__(self, streams: Streams, aliases: set[str] | None = None) -> None:
        """``aliases`` are those of all queries of a statement: they are unique in it."""
        self._streams = streams
        self._aliases = set() if aliases is None else aliases
        self.inputs: list[Input] = []
        self.columns: dict[str, InputColumn] = {}

    def add(self, table: exp.Table, alias: str) -> _Added:
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
        return self._added(Input(len(self.inputs), self._unique(alias), stream, position), alias)

    def add_results(self, stream: StreamDef, results: Results, alias: str, position: Position | None) -> _Added:
        """Add the results of queries, which ``stream`` describes; return what ``add`` does."""
        return self._added(Input(len(self.inputs), self._unique(alias), stream, position, results=results), alias)

    def adopt(self, input: Input, columns: Mapping[str, InputColumn]) -> Leaf:
        """Make an input of another query, which is no part of the statement, one of this query."""
        index = len(self.inputs)
        own = (each for each in columns.values() if each.input == input.index)
        self.columns.update({each.name: replace(each, input=index) for each in own})
        self.inputs.append(replace(input, index=index))
        return Leaf(self.inputs[index])

    def window_by(self, leaf: Leaf, time: EventTime) -> Leaf:
        """Let the windows of an input be over another time than its event time; return its leaf."""
        leaf = replace(leaf, input=replace(leaf.input, windowed_by=time))
        self.replace(leaf)
        return leaf

    def add_window(self, leaf: Leaf, window: Window) -> tuple[Leaf, dict[WindowBound, exp.Expr]]:
        """Give an input windows; return its leaf, and the columns with their bounds."""
        input = leaf.input
        number = next((place for place, each in enumerate(input.windows) if each == window), len(input.windows))
        if number == len(input.windows):
            input = replace(input, windows=(*input.windows, window))
            leaf = replace(leaf, input=input)
            self.replace(leaf)
        kind, unit = input.window_type, input.window_time.unit
        return leaf, {bound: self._column(input, window_column(number, bound), kind, unit) for bound in WindowBound}

    def add_explode(
        self,
        leaf: Leaf,
        array: exp.Expr,
        kind: exp.DataType,
        name: str,
        text: str,
        labels: tuple[str, str] = (POSITION, ELEMENT),
        *,
        outer: bool,
    ) -> tuple[Leaf, Exploded]:
        """Give an input a row for each element of an array; return its leaf, and the columns of the elements.

        ``name`` stands before the names of these; ``labels`` are those of the position and the element.
        """
        input, element = leaf.input, element_type(kind)
        assert element is not None
        taken = {column for each in input.explodes for column in each.names}

        def named(column: str) -> str:
            found = f"${name}:{column}".replace(".", "_")  # Spark takes what follows a dot for a field
            while found in taken:
                found += "'"
            taken.add(found)
            return found

        position, whole = map(named, labels)
        fields = [(named(field), field, type) for field, type in fields_of(element)]
        by_field = tuple((column, field) for column, field, _ in fields)
        explode = Explode(array, kind, outer, position, whole, by_field, text)
        input = replace(input, explodes=(*input.explodes, explode))
        leaf = replace(leaf, input=input)
        self.replace(leaf)
        return leaf, Exploded(
            self._column(input, explode.position, exp.DataType.build("INT", dialect="spark")),
            self._column(input, explode.element, element),
            {field: self._column(input, column, type) for column, field, type in fields},
        )

    def _added(self, input: Input, alias: str) -> _Added:
        self.inputs.append(input)
        stream = input.stream
        types = {column.name: exp.DataType.build(column.type, dialect="spark") for column in stream.columns}
        # the delta describes the change; it is not a value of the row
        columns = {
            name: self._column(input, name, type, _unit(input, place))
            for place, (name, type) in enumerate(types.items())
            if name.lower() != TP_DELTA
        }
        hidden = {
            name: self._column(input, name, exp.DataType.build(type, dialect="spark"))
            for name, type in (stream.hidden if input.results is None else {}).items()
        }
        if not stream.outside and input.results is None:
            hidden[TP_DELTA] = exp.column(exp.to_identifier(TP_DELTA, quoted=True))
        return Leaf(input), Relation(alias, columns, hidden)

    def state(self) -> InputsState:
        """What there is so far, to go back to."""
        return len(self.inputs), frozenset(self.columns), frozenset(self._aliases)

    def restore(self, state: InputsState) -> None:
        """Forget what was added since."""
        number, columns, aliases = state
        del self.inputs[number:]
        for name in [name for name in self.columns if name not in columns]:
            del self.columns[name]
        self._aliases.intersection_update(aliases)

    def replace(self, leaf: Leaf) -> None:
        """Replace an input (VERSIONED ON names another event time)."""
        self.inputs[leaf.input.index] = leaf.input

    def _unique(self, alias: str) -> str:
        while alias in self._aliases:
            alias += "'"
        self._aliases.add(alias)
        return alias

    def _column(self, input: Input, column: str, type: exp.DataType, unit: TimeUnit | None = None) -> exp.Expr:
        name = input.physical(column)
        self.columns[name] = InputColumn(name, input.index, column, type)
        found = counting(exp.column(exp.to_identifier(name, quoted=True)), type, unit)
        if type.is_type(exp.DataType.Type.STRUCT):  # by which scope.py finds its fields
            found.type = type
        return found


def _unit(input: Input, place: int) -> TimeUnit | None:
    """What a declared column counts that is a time; None for other columns."""
    if input.results is not None:
        units = {unit_of(query.outputs[place].expression) for query in input.results.queries}
        return units.pop() if len(units) == 1 else None
    name, order = input.stream.columns[place].name, input.stream.lead
    times = [input.time, *([order] if order is not None else [])]
    return next((time.unit for time in times if time.column.lower() == name.lower()), None)
