"""DuckDB SQL for Spark's expressions, where sqlglot's own gives other values or none."""

from __future__ import annotations

from sqlglot import exp, parse_one

from watersmeet.expressions.type_groups import INTEGERS
from watersmeet.plan.across_sides import with_typed_numbers
from watersmeet.plan.logical.certain_types import certain_type

_DISTINCT = "list_filter({0}, LAMBDA x, i : list_position({0}, x) = i)"  # list_distinct has no NULL, and no order
_CHOSEN = "CASE WHEN {1} IS NOT NULL THEN list_filter(%s, LAMBDA x : coalesce(list_position({1}, x), 0) %s 0) END"
#: DuckDB SQL by function, of its operands.
_TEMPLATES: dict[type[exp.Expr] | str, str] = {
    exp.ArrayDistinct: _DISTINCT,
    exp.ArraySlice: "list_slice({0}, {1}, {1} + {2} - 1)",
    exp.ArrayIntersect: _CHOSEN % (_DISTINCT, ">"),
    exp.ArrayExcept: _CHOSEN % (_DISTINCT, "="),
    "array_union": _DISTINCT.replace("{0}", "({0} || {1})"),
}


def duckdb_sql(expression: exp.Expr) -> str:
    """DuckDB SQL of an expression."""
    return with_typed_numbers(expression.copy()).transform(_written).sql(dialect="duckdb")


def _written(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.FromJson):
        kind = certain_type(node, {})
        if kind is None:
            return node
        return exp.TryCast(this=exp.TryCast(this=node.this.transform(_written), to=exp.DataType.build("JSON")), to=kind)
    if isinstance(node, exp.Cast) and node.to.is_type(*INTEGERS) and not node.this.is_int:
        return _truncated(node)
    if isinstance(node, exp.ArraysZip):
        return _zipped([f"({duckdb_sql(each)})" for each in node.expressions])
    name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node)
    if (template := _TEMPLATES.get(name)) is None:
        return node
    first = [] if isinstance(node, exp.Anonymous) else [node.this]
    parts = [*first, *(node.args.get(each) for each in ("expression", "start", "end")), *node.expressions]
    operands = [f"({duckdb_sql(each)})" for each in parts if isinstance(each, exp.Expr)]
    return parse_one(template.format(*operands), dialect="duckdb")


def _truncated(cast: exp.Cast) -> exp.Expr:
    """A cast to a whole number that drops a fraction, where DuckDB would round it."""
    operand, kind = f"({duckdb_sql(cast.this)})", cast.to.sql("duckdb")
    name = "TRY_CAST" if isinstance(cast, exp.TryCast) else "CAST"
    whole = f"{name}(trunc(TRY_CAST({operand} AS {{}})) AS {kind})"
    return parse_one(
        f"CASE WHEN typeof({operand}) IN ('FLOAT', 'DOUBLE') THEN {whole.format('DOUBLE')} "
        f"WHEN typeof({operand}) LIKE 'DECIMAL%' THEN {whole.format('DECIMAL(38, 18)')} "
        f"ELSE {name}({operand} AS {kind}) END",
        dialect="duckdb",
    )


def _zipped(arrays: list[str]) -> exp.Expr:
    """Structs with numbered fields, as long as the longest array; NULL if one is."""
    fields = ", ".join(f"'{place}': z[{place + 1}]" for place in range(len(arrays)))
    is_there = " AND ".join(f"{array} IS NOT NULL" for array in arrays)
    zipped = f"list_transform(list_zip({', '.join(arrays)}), LAMBDA z : {{{fields}}})"
    return parse_one(f"CASE WHEN {is_there} THEN {zipped} END", dialect="duckdb")
