"""A generator in FROM: an input of the tree before it gets a row for each element of an array of its columns.

Elements belong to one row of one input, so they are made where that input's rows are packed, and joins see them as they
see any row.  That is the same as making them of the results of the joins unless a join pads the input, picks one row of
it, or its rows replace each other.  Then what stands before the generator becomes a query of its own, whose results
have an array: a result and its retraction are exploded alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.bind.conditions import bind_on
from watersmeet.bind.generators import IN_SELECT, Generator
from watersmeet.bind.inputs import ELEMENT, POSITION, Exploded, Inputs
from watersmeet.bind.nested_joins import repeated
from watersmeet.bind.relations import Relation
from watersmeet.bind.scope import Scope
from watersmeet.bind.zips import zipped
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.explodes import element_type, fields_of
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.api import Side
from watersmeet.plan.determinism import varying_calls
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.conditions import conjuncts, inputs_of
from watersmeet.plan.logical.tree import Input, Leaf, Node, leaves_of

#: An element, in the condition that it must meet.
_TESTED = "_wm_element"
_CLAUSES = {"within": "WITHIN", "grace": "GRACE PERIOD", "lateness": "ALLOWED LATENESS", "using": "USING"}


@dataclass(frozen=True, slots=True)
class Array:
    """The array whose elements become rows, and its type; ``of`` is that of the array in the text.

    They differ where the elements are ``numbered``: structs of a position and an element.
    """

    expression: exp.Expr
    type: exp.DataType
    of: exp.DataType
    numbered: bool = False

    def elements(self, found: Exploded) -> Exploded:
        """The columns of the elements that the text means, among those of what the array has."""
        if not self.numbered:
            return found
        position, element = found.fields.values()
        return Exploded(position, element, _fields(element, element_type(self.of)))


def bind_array(generator: Generator, scope: Scope, names: Inputs) -> Array:
    """The array of a generator over the columns in scope.

    Raises ``BindError`` for what is neither an array nor a map, and for a type that is not known.
    """
    array, position = scope.substitute(generator.array).unnest(), position_of(generator.call)
    if isinstance(generator.call, exp.Unnest) and len(generator.call.expressions) > 1:
        for part in generator.call.expressions:
            kind = certain_type(scope.substitute(part).unnest(), names.columns)
            if kind is not None and not kind.is_type(exp.DataType.Type.ARRAY):
                raise BindError(
                    f"UNNEST of several takes arrays; {plain_sql(part)} is {kind.sql(dialect='spark')}",
                    hint="map_entries makes an array of a map",
                    position=position_of(part) or position,
                )
    for call in varying_calls([array]):
        raise UnsupportedError(
            f"{plain_sql(call)} is nondeterministic, so a retraction could not repeat the rows of {generator.text}",
            hint="leave it out",
            position=position,
        )
    kind = certain_type(array, names.columns)
    if kind is None:
        raise BindError(
            f"the type of {plain_sql(generator.array)} is not known here",
            hint="CAST it, as in CAST(… AS ARRAY<STRING>)",
            position=position,
        )
    element = element_type(kind)
    if element is None:
        raise BindError(
            f"{generator.text} takes an array or a map; {plain_sql(generator.array)} is {kind.sql(dialect='spark')}",
            position=position,
        )
    if generator.spread and not (fields_of(element) and kind.is_type(exp.DataType.Type.ARRAY)):
        raise BindError(
            f"{generator.text} takes an array of structs; {plain_sql(generator.array)} is {kind.sql(dialect='spark')}",
            hint="use explode",
            position=position,
        )
    return _filtered(generator, Array(array, kind, kind), scope) if generator.on else Array(array, kind, kind)


def _filtered(generator: Generator, array: Array, scope: Scope) -> Array:
    """The array with the elements that meet the conditions of LEFT JOIN … ON, which keep their numbers."""
    is_map = array.of.is_type(exp.DataType.Type.MAP)
    if generator.first is not None and (is_map or len(generator.call.expressions) > 1):
        raise UnsupportedError(
            f"LEFT JOIN {generator.text} with positions takes ON TRUE alone: of one array, elements keep them under a"
            " condition, of a map or several arrays not yet",
            hint="leave out the positions, or write CROSS JOIN and test the columns in WHERE",
            position=position_of(generator.on[0]) or position_of(generator.call),
        )
    if is_map:
        kind = _array_of(element_type(array.of))
        array = Array(exp.Anonymous(this="map_entries", expressions=[array.expression]), kind, kind)
    if generator.first is not None:
        array = _numbered(generator, array)
    element = element_type(array.type)
    tested = _typed(exp.to_identifier(_TESTED), element)
    found = array.elements(Exploded(exp.null(), tested, _fields(tested, element)))
    around = Scope([*scope.relations], outer=scope.outer, shared=[*scope.shared])
    add_relation(generator, array.of, found, around)
    tests = [bind_on(term, around) for term in generator.on]
    for call in varying_calls(tests):
        raise UnsupportedError(
            f"{plain_sql(call)} is nondeterministic, so a retraction could not repeat the rows of {generator.text}",
            hint="leave it out",
            position=position_of(call) or position_of(generator.call),
        )
    function = exp.Lambda(this=exp.and_(*tests, copy=False), expressions=[exp.to_identifier(_TESTED)])
    return replace(array, expression=exp.ArrayFilter(this=array.expression, expression=function))


def _numbered(generator: Generator, array: Array) -> Array:
    """The array with structs of a position, from 0, and the element in place of each element."""
    labels, element, size = labels_of(generator, array.of), element_type(array.of), exp.ArraySize(this=array.expression)
    assert element is not None
    last = exp.Sub(this=size, expression=exp.Literal.number(1))
    positions = exp.Case(
        ifs=[
            exp.If(
                this=exp.GT(this=size.copy(), expression=exp.Literal.number(0)),
                true=exp.GenerateSeries(start=exp.Literal.number(0), end=last),
            )
        ],
        default=exp.Array(),  # a sequence to -1 would fall
    )
    fields = [
        exp.ColumnDef(this=exp.to_identifier(label, quoted=True), kind=kind)
        for label, kind in zip(labels, (exp.DataType.build("INT", dialect="spark"), element.copy()), strict=True)
    ]
    kind = _array_of(exp.DataType(this=exp.DataType.Type.STRUCT, expressions=fields, nested=True))
    pairs = zipped([exp.Coalesce(this=positions), exp.Coalesce(this=array.expression.copy())], labels)
    return Array(pairs, kind, array.of, numbered=True)


def _array_of(element: exp.DataType | None) -> exp.DataType:
    assert element is not None
    return exp.DataType(this=exp.DataType.Type.ARRAY, expressions=[element.copy()], nested=True)


def _fields(value: exp.Expr, kind: exp.DataType | None) -> dict[str, exp.Expr]:
    """The fields of a value that is a struct; none of any other."""
    return {
        name: _typed(exp.Dot(this=value.copy(), expression=exp.to_identifier(name, quoted=True)), of_field)
        for name, of_field in (fields_of(kind) if kind is not None else ())
    }


def _typed(value: exp.Expr, kind: exp.DataType | None) -> exp.Expr:
    """A value whose fields can be named, if it is a struct."""
    value.type = kind if kind is not None and kind.is_type(exp.DataType.Type.STRUCT) else None
    return value


def leaf_for(array: exp.Expr, node: Node, names: Inputs) -> Leaf | None:
    """The input in a tree whose rows can be exploded instead of the tree's results; None where there is none."""
    read = inputs_of(array, names.columns)
    if not all(column.name in names.columns for column in array.find_all(exp.Column)):
        return None  # such as _tp_delta, which is a change's and not a row's
    possible = [leaf for leaf in leaves_of(node) if read <= {leaf.input.index} and _may_repeat(node, leaf.input)]
    return possible[0] if possible else None


def _may_repeat(node: Node, input: Input) -> bool:
    """Whether a row of an input may be there several times, or not at all, with the same effect as in the results."""
    if isinstance(node, Leaf):
        return not input.stream.changes and not input.stream.outside
    side = Side.LEFT if input.index in node.left.inputs else Side.RIGHT
    if not node.kind.outputs(side) or node.kind.pads(side) or (side is Side.RIGHT and node.asof is not None):
        return False
    return _may_repeat(node.child(side), input)


def with_leaf(node: Node, leaf: Leaf) -> Node:
    """The tree with another leaf in place of the one of the same input."""
    if isinstance(node, Leaf):
        return leaf if node.input.index == leaf.input.index else node
    if leaf.input.index not in node.inputs:
        return node
    return replace(node, left=with_leaf(node.left, leaf), right=with_leaf(node.right, leaf))


def add_relation(generator: Generator, kind: exp.DataType, found: Exploded, scope: Scope) -> None:
    """Bring the columns of elements in scope, under the names that the text gives them.

    Raises ``BindError`` where it gives too many or too few.
    """
    alias = generator.alias or _free_alias(generator, scope)
    if scope.relation(alias) is not None:
        raise repeated(alias, generator.call)
    columns = _named(generator, _columns(generator, kind, found, alias))
    fields = {
        (name.lower(), field.lower()): own
        for name, column in columns
        if column == found.element
        for field, own in found.fields.items()
    }
    scope.relations.append(Relation(alias, dict(columns), fields=fields, is_apart=alias == IN_SELECT))


def add_values(generator: Generator, scope: Scope, names: Inputs) -> None:
    """Bring the values of a generator that makes one row of each row in scope; ``BindError`` for what is no text."""
    alias = generator.alias or _free_alias(generator, scope)
    if scope.relation(alias) is not None:
        raise repeated(alias, generator.call)
    kind = certain_type(scope.substitute(generator.array).unnest(), names.columns)
    if kind is not None and not kind.is_type(*exp.DataType.TEXT_TYPES):
        raise BindError(
            f"{generator.text} takes a text; {plain_sql(generator.array)} is {kind.sql(dialect='spark')}",
            position=position_of(generator.call),
        )
    columns = [(f"c{place}", scope.substitute(value)) for place, value in enumerate(generator.values)]
    scope.relations.append(Relation(alias, dict(_named(generator, columns)), is_apart=alias == IN_SELECT))


def _named(generator: Generator, columns: list[tuple[str, exp.Expr]]) -> list[tuple[str, exp.Expr]]:
    """The columns under the names that the text gives them; ``BindError`` where these do not fit."""
    if generator.names:
        if len(generator.names) != len(columns):
            raise BindError(
                f"{generator.text} makes {_counted(columns)} ({', '.join(name for name, _ in columns)}), and"
                f" {len(generator.names)} {'is' if len(generator.names) == 1 else 'are'} named here",
                hint="name each column, or none",
                position=position_of(generator.names[0]) or position_of(generator.call),
            )
        columns = [(given.name, column) for given, (_, column) in zip(generator.names, columns, strict=True)]
    known: set[str] = set()
    for name, _ in columns:
        if name.lower() in known:
            raise BindError(
                f"{generator.text} makes two columns {name}",
                hint=f"name them: … AS t({', '.join(f'column_{place}' for place in range(1, len(columns) + 1))})",
                position=position_of(generator.call),
            )
        known.add(name.lower())
    return columns


def _columns(generator: Generator, kind: exp.DataType, found: Exploded, alias: str) -> list[tuple[str, exp.Expr]]:
    """The columns of a generator, in their order, with the names that they have without others."""
    is_map = kind.is_type(exp.DataType.Type.MAP)
    given = len(generator.names) - (generator.first is not None)
    spread = generator.spread
    if spread is None:  # UNNEST: a single name may be that of the structs
        spread = bool(found.fields) and (given != 1 or len(found.fields) == 1)
    columns = list(found.fields.items()) if is_map or spread else []
    if not columns:
        columns = [("col" if generator.spread is False else alias, found.element)]
    if generator.first is None:
        return columns
    number: exp.Expr = found.position.copy()
    if generator.first:
        number = exp.Add(this=number, expression=exp.Literal.number(generator.first))
    if generator.counts_last:
        return [*columns, ("ordinality", number)]
    return [("pos", number), *columns]


def labels_of(generator: Generator, kind: exp.DataType) -> tuple[str, str]:
    """What the position and the element are called, for EXPLAIN and errors: as in the text, where it names them."""
    names = [each.name for each in generator.names]
    position, element = POSITION, ELEMENT
    if names and generator.first is not None:
        position = names.pop(-1 if generator.counts_last else 0)
    is_whole = len(names) == 1 and not generator.spread and not kind.is_type(exp.DataType.Type.MAP)
    return position, names[0] if is_whole else element


def _free_alias(generator: Generator, scope: Scope) -> str:
    """The alias of a relation that has none in the text."""
    call = generator.call
    name = call.name if isinstance(call, exp.Anonymous) else call.sql_name() if isinstance(call, exp.Func) else ""
    alias, number = name.lower(), 2
    while scope.relation(alias) is not None:
        alias, number = f"{name.lower()}_{number}", number + 1
    return alias


def _counted(columns: Sequence[object]) -> str:
    return "1 column" if len(columns) == 1 else f"{len(columns)} columns"


# -- JOIN … ON ---------------------------------------------------------------------------------------------------------


def of_join(join: exp.Join, generator: Generator) -> Generator:
    """The generator as its join has it: LEFT JOIN keeps rows without elements.

    Raises ``UnsupportedError`` for kinds of joins and clauses that a generator does not take.
    """
    position = position_of(join)
    side, kind = join.side.upper(), join.kind.upper()
    if join.method or side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER"):
        raise UnsupportedError(
            f"{' '.join(filter(None, (join.method.upper(), side, kind)))} JOIN with {generator.text} is not supported",
            hint="CROSS JOIN and LEFT JOIN … ON TRUE are",
            position=position,
        )
    for arg, clause in _CLAUSES.items():
        if join.args.get(arg):
            raise UnsupportedError(
                f"{clause} is not for {generator.text}: its rows are those of one row's array",
                hint="leave it out",
                position=position,
            )
    if side != "LEFT":
        return generator
    on = _terms_on(join)
    if not on:
        return replace(generator, outer=True)
    if generator.values:
        raise UnsupportedError(
            f"LEFT JOIN {generator.text} takes ON TRUE alone: it makes one row of each row",
            hint="test its columns in WHERE, or write CASE WHEN … THEN c0 END in the SELECT list",
            position=position_of(join.args["on"]) or position,
        )
    return replace(generator, outer=True, on=tuple(on))


def conditions_on(join: exp.Join, scope: Scope) -> list[exp.Expr]:
    """The conditions of an inner join with a generator, but for TRUE."""
    return [] if join.side else [bind_on(term, scope) for term in _terms_on(join)]


def _terms_on(join: exp.Join) -> list[exp.Expr]:
    """The terms of ON but for TRUE."""
    terms = conjuncts(join.args.get("on"))
    return [term for term in terms if not (isinstance(term, exp.Boolean) and term.this)]
