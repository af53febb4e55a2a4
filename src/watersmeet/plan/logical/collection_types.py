"""The types of functions over arrays, maps and structs, and of lambda functions in them, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.expressions.explodes import element_type, fields_of
from watersmeet.expressions.type_groups import INSTANTS, INTEGERS, NESTED, TEXTS
from watersmeet.plan.logical.common_types import array_type, build_type, common_type, map_type, struct_type

_T = exp.DataType.Type
_Type = exp.DataType | None
TypeOf = Callable[[exp.Expr], _Type]
#: The type of a lambda function's value, of the types of its parameters.
TypeOfLambda = Callable[[exp.Expr, Sequence[_Type]], _Type]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call: its operands, and their types."""

    operands: Sequence[exp.Expr]
    kinds: Sequence[_Type]
    of_lambda: TypeOfLambda


#: Where sqlglot has a node for a function: in which order its operands stand there.
_OPERANDS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Map: ("keys", "values"),
    exp.GenerateSeries: ("start", "end", "step"),
    exp.Reduce: ("this", "initial", "merge", "finish"),
}


def collection_type(node: exp.Expr, of: TypeOf, of_lambda: TypeOfLambda) -> exp.DataType | None:
    """The type of an expression that makes, reads or changes an array, a map or a struct; None for any other."""
    if isinstance(node, exp.Array):
        return array_type(_common(node.expressions, [of(each) for each in node.expressions]))
    if isinstance(node, exp.VarMap):
        return map_type(*(_element(of(node.args[part])) for part in ("keys", "values")))
    if isinstance(node, exp.Struct):
        return _struct(node, of)
    if isinstance(node, exp.Exists) and not isinstance(node.expression, exp.Lambda):
        return None  # of a subquery
    name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node)
    if (fixed := _FIXED.get(name)) is not None:
        return build_type(fixed)
    if (rule := _RULES.get(name)) is None:
        return None
    operands = _operands(node)
    return rule(_Call(operands, [of(each) for each in operands], of_lambda))


def is_empty(node: exp.Expr) -> bool:
    """Whether it is ``array()`` or ``map()``, which takes the type of what stands beside it."""
    if isinstance(node, exp.VarMap):
        return not node.args["keys"].expressions
    return isinstance(node, exp.Array) and not node.expressions


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if (names := _OPERANDS.get(type(node))) is not None:
        return [node.args[name] for name in names if isinstance(node.args.get(name), exp.Expr)]
    first = [node.this] if isinstance(node.this, exp.Expr) else []
    second = [node.expression] if isinstance(node.args.get("expression"), exp.Expr) else []
    return [*first, *second, *node.expressions]


def _common(operands: Sequence[exp.Expr], kinds: Sequence[_Type]) -> _Type:
    """The common type of operands, of which NULL and empty ones take any."""
    pairs = zip(operands, kinds, strict=True)
    return common_type(kind for node, kind in pairs if not (isinstance(node, exp.Null) or is_empty(node)))


def _is(kind: _Type, *groups: exp.DType) -> bool:
    return kind is not None and kind.is_type(*groups)


def _element(kind: _Type) -> _Type:
    """The type of an array's elements."""
    return kind.expressions[0] if kind is not None and kind.is_type(_T.ARRAY) and kind.expressions else None


def _entry(kind: _Type) -> tuple[_Type, _Type]:
    """The types of a map's keys and values."""
    if kind is None or not kind.is_type(_T.MAP) or len(kind.expressions) != 2:
        return None, None
    return kind.expressions[0], kind.expressions[1]


def _struct(node: exp.Struct, of: TypeOf) -> _Type:
    fields: list[tuple[str, _Type]] = []
    for number, part in enumerate(node.expressions, 1):
        is_named = isinstance(part, exp.PropertyEQ)
        fields.append((part.name, of(part.expression)) if is_named else (f"col{number}", of(part)))
    return struct_type(fields) if fields else None


# -- rules -------------------------------------------------------------------------------------------------------------


def _same(call: _Call) -> _Type:
    return call.kinds[0] if _is(call.kinds[0], _T.ARRAY, _T.MAP) else None


def _reversed(call: _Call) -> _Type:
    return build_type("STRING") if _is(call.kinds[0], *TEXTS) else _same(call)


def _joined(call: _Call) -> _Type:
    """One array or map of several."""
    common = _common(call.operands, call.kinds)
    return common if _is(common, _T.ARRAY, _T.MAP) else None


def _with_element(call: _Call) -> _Type:
    """An array and an element: of their common type."""
    if isinstance(call.operands[1], exp.Null):
        return _same(call)
    return array_type(common_type([_element(call.kinds[0]), call.kinds[1]]))


def _flat(call: _Call) -> _Type:
    inner = _element(call.kinds[0])
    return inner if _is(inner, _T.ARRAY) else None


def _series(call: _Call) -> _Type:
    if all(_is(kind, *INTEGERS) for kind in call.kinds):
        return array_type(common_type(call.kinds))
    common = common_type(call.kinds[:2])
    return array_type(common) if _is(common, _T.DATE, *INSTANTS, _T.TIMESTAMPNTZ) else None


def _transformed(call: _Call) -> _Type:
    return array_type(call.of_lambda(call.operands[1], [_element(call.kinds[0]), build_type("INT")]))


def _zipped_by(call: _Call) -> _Type:
    return array_type(call.of_lambda(call.operands[2], [_element(kind) for kind in call.kinds[:2]]))


def _zipped(call: _Call) -> _Type:
    """Fields are numbered, as in Spark where no operand is a column: bind/zips.py writes it so."""
    if any(isinstance(each, exp.Column) for each in call.operands):
        return None
    return array_type(struct_type((str(place), _element(kind)) for place, kind in enumerate(call.kinds)))


def _reduced(call: _Call) -> _Type:
    return call.kinds[1] if len(call.operands) < 4 else call.of_lambda(call.operands[3], [call.kinds[1]])


def _entries(call: _Call) -> _Type:
    kind = call.kinds[0]
    return array_type(element_type(kind)) if kind is not None and kind.is_type(_T.MAP) else None


def _of_entries(call: _Call) -> _Type:
    entry = _element(call.kinds[0])
    fields = [kind for _, kind in fields_of(entry)] if entry is not None else []
    return map_type(*fields) if len(fields) == 2 else None


def _with_values(call: _Call) -> _Type:
    key, value = _entry(call.kinds[0])
    return map_type(key, call.of_lambda(call.operands[1], [key, value]))


def _with_keys(call: _Call) -> _Type:
    key, value = _entry(call.kinds[0])
    return map_type(call.of_lambda(call.operands[1], [key, value]), value)


def _maps_zipped(call: _Call) -> _Type:
    (key, value), (other_key, other) = _entry(call.kinds[0]), _entry(call.kinds[1])
    common = common_type([key, other_key])
    return map_type(common, call.of_lambda(call.operands[2], [common, value, other]))


def _from_text(call: _Call) -> _Type:
    """What a schema says that is written out: a type, or the fields of a struct."""
    schema = call.operands[1]
    if not (isinstance(schema, exp.Literal) and schema.is_string):
        return None
    for written in (schema.name, f"STRUCT<{schema.name}>"):
        try:
            found = build_type(written)
            arrow_type(found)
        except (SqlglotError, ValueError, UnsupportedError):
            continue
        if all(part.expressions for part in found.find_all(exp.DataType) if part.is_type(*NESTED)):
            return found
    return None


_FIXED: dict[type[exp.Expr] | str, str] = {
    **dict.fromkeys((exp.ArrayContains, exp.MapContainsKey, exp.Exists, "forall", "arrays_overlap"), "BOOLEAN"),
    **dict.fromkeys(("cardinality", "json_array_length"), "INT"),
    exp.ArrayPosition: "BIGINT",
    **dict.fromkeys((exp.ArrayToString, exp.JSONFormat, exp.JSONExtractScalar), "STRING"),
    **dict.fromkeys((exp.Split, exp.RegexpSplit, exp.RegexpExtractAll, exp.JSONKeys), "ARRAY<STRING>"),
    "sentences": "ARRAY<ARRAY<STRING>>",
    exp.StrToMap: "MAP<STRING, STRING>",
}
_RULES: dict[type[exp.Expr] | str, Callable[[_Call], _Type]] = {
    **dict.fromkeys((exp.ArrayDistinct, exp.ArrayCompact, exp.ArraySlice, exp.ArrayFilter), _same),
    **dict.fromkeys((exp.ArraySort, exp.ArrayRemove, "map_filter"), _same),
    exp.Reverse: _reversed,
    **dict.fromkeys((exp.Concat, exp.DPipe, exp.ArrayIntersect, exp.ArrayExcept, "array_union", "map_concat"), _joined),
    **dict.fromkeys((exp.ArrayAppend, exp.ArrayPrepend, exp.ArrayInsert), _with_element),
    exp.Flatten: _flat,
    **dict.fromkeys((exp.ArrayMax, exp.ArrayMin, "get"), lambda call: _element(call.kinds[0])),
    "array_repeat": lambda call: array_type(call.kinds[0]),
    exp.GenerateSeries: _series,
    exp.Transform: _transformed,
    "zip_with": _zipped_by,
    exp.ArraysZip: _zipped,
    exp.Reduce: _reduced,
    exp.MapKeys: lambda call: array_type(_entry(call.kinds[0])[0]),
    "map_values": lambda call: array_type(_entry(call.kinds[0])[1]),
    "map_entries": _entries,
    exp.Map: lambda call: map_type(*(_element(kind) for kind in call.kinds)),
    exp.MapFromEntries: _of_entries,
    "transform_values": _with_values,
    "transform_keys": _with_keys,
    "map_zip_with": _maps_zipped,
    exp.FromJson: _from_text,
}
