"""The types of functions over arrays, maps and structs; tests/spark compares them with Spark's own."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.tree import InputColumn

COLUMNS = {
    "i": "INT",
    "b": "BIGINT",
    "s": "STRING",
    "day": "DATE",
    "ts": "TIMESTAMP",
    "dec": "DECIMAL(10, 2)",
    "xs": "ARRAY<INT>",
    "ys": "ARRAY<BIGINT>",
    "ss": "ARRAY<STRING>",
    "xss": "ARRAY<ARRAY<INT>>",
    "ps": "ARRAY<STRUCT<a: INT, `order`: STRING>>",
    "m": "MAP<STRING, INT>",
    "st": "STRUCT<a: INT, b: STRING>",
}
TYPES = {
    "array_distinct(xs)": "ARRAY<INT>",
    "flatten(xss)": "ARRAY<INT>",
    "map_keys(m)": "ARRAY<STRING>",
    "map_values(m)": "ARRAY<INT>",
    "map_entries(m)": "ARRAY<STRUCT<key: STRING, value: INT>>",
    "filter(xs, x -> x > 1)": "ARRAY<INT>",
    "transform(xs, x -> x + 1)": "ARRAY<INT>",
    "transform(xs, (x, i) -> x + i)": "ARRAY<INT>",
    "transform(ps, p -> p.a)": "ARRAY<INT>",
    "transform(ps, p -> upper(p.order))": "ARRAY<STRING>",
    "array_sort(xs)": "ARRAY<INT>",
    "array_sort(xs, (l, r) -> r - l)": "ARRAY<INT>",
    "sort_array(xs)": "ARRAY<INT>",
    "sort_array(xs, false)": "ARRAY<INT>",
    "slice(xs, 1, 2)": "ARRAY<INT>",
    "array_union(xs, xs)": "ARRAY<INT>",
    "array_union(xs, ys)": "ARRAY<BIGINT>",
    "array_intersect(xs, ys)": "ARRAY<BIGINT>",
    "array_except(xs, ys)": "ARRAY<BIGINT>",
    "concat(xs, ys)": "ARRAY<BIGINT>",
    "concat(xs, array())": "ARRAY<INT>",
    "concat(s, 'a')": "STRING",
    "split(s, ',')": "ARRAY<STRING>",
    "split(s, ',', 2)": "ARRAY<STRING>",
    "sequence(1, 5)": "ARRAY<INT>",
    "sequence(1, b)": "ARRAY<BIGINT>",
    "sequence(i, b, 2)": "ARRAY<BIGINT>",
    "sequence(day, day, interval 1 day)": "ARRAY<DATE>",
    "sequence(ts, ts, interval 1 hour)": "ARRAY<TIMESTAMP>",
    "from_json(s, 'a INT, b ARRAY<STRING>')": "STRUCT<a: INT, b: ARRAY<STRING>>",
    "from_json(s, 'ARRAY<STRUCT<a: INT>>')": "ARRAY<STRUCT<a: INT>>",
    "from_json(s, 'MAP<STRING, DECIMAL(10, 2)>')": "MAP<STRING, DECIMAL(10, 2)>",
    "array(1, 2)": "ARRAY<INT>",
    "array(1, b)": "ARRAY<BIGINT>",
    "array(1, NULL)": "ARRAY<INT>",
    "array(1, 1.5)": "ARRAY<DECIMAL(11, 1)>",
    "array(dec, 1)": "ARRAY<DECIMAL(12, 2)>",
    "array(s, 'a')": "ARRAY<STRING>",
    "array(xs, ys)": "ARRAY<ARRAY<BIGINT>>",
    "array(array(1), array())": "ARRAY<ARRAY<INT>>",
    "map('a', 1)": "MAP<STRING, INT>",
    "map('a', 1, 'b', NULL)": "MAP<STRING, INT>",
    "map('a', xs)": "MAP<STRING, ARRAY<INT>>",
    "named_struct('a', 1, 'b', s)": "STRUCT<a: INT, b: STRING>",
    "named_struct('order', 1, 'B c', s)": "STRUCT<order: INT, `B c`: STRING>",
    "struct(i, s)": "STRUCT<i: INT, s: STRING>",
    "struct(i AS a)": "STRUCT<a: INT>",
    "struct(i + 1, i)": "STRUCT<col1: INT, i: INT>",
    "array(named_struct('a', 1, 'b', s), named_struct('a', b, 'b', 'x'))": "ARRAY<STRUCT<a: BIGINT, b: STRING>>",
    "map_from_arrays(ss, ys)": "MAP<STRING, BIGINT>",
    "map_from_entries(ps)": "MAP<INT, STRING>",
    "map_concat(m, m)": "MAP<STRING, INT>",
    "map_filter(m, (k, v) -> v > 1)": "MAP<STRING, INT>",
    "transform_keys(m, (k, v) -> length(k))": "MAP<INT, INT>",
    "transform_values(m, (k, v) -> v + 1.5)": "MAP<STRING, DECIMAL(12, 1)>",
    "array_remove(xs, 1)": "ARRAY<INT>",
    "array_append(xs, 1)": "ARRAY<INT>",
    "array_append(xs, b)": "ARRAY<BIGINT>",
    "array_prepend(xs, b)": "ARRAY<BIGINT>",
    "array_append(xs, NULL)": "ARRAY<INT>",
    "array_insert(xs, 1, 5)": "ARRAY<INT>",
    "array_insert(xs, 1, b)": "ARRAY<BIGINT>",
    "array_compact(xs)": "ARRAY<INT>",
    "array_repeat(i, 3)": "ARRAY<INT>",
    "array_repeat(s, 2)": "ARRAY<STRING>",
    "reverse(xs)": "ARRAY<INT>",
    "reverse(s)": "STRING",
    "array_max(xs)": "INT",
    "array_min(ss)": "STRING",
    "array_position(xs, 1)": "BIGINT",
    "array_contains(xs, 1)": "BOOLEAN",
    "arrays_overlap(xs, ys)": "BOOLEAN",
    "array_join(ss, ',')": "STRING",
    "cardinality(xs)": "INT",
    "size(m)": "INT",
    "element_at(xs, 1)": "INT",
    "element_at(m, 'a')": "INT",
    "xs[0]": "INT",
    "m['a']": "INT",
    "ps[0].a": "INT",
    "try_element_at(xs, 1)": "INT",
    "get(ss, 0)": "STRING",
    "exists(xs, x -> x > 1)": "BOOLEAN",
    "forall(xs, x -> x > 1)": "BOOLEAN",
    "aggregate(xs, 0, (a, x) -> a + x)": "INT",
    "aggregate(xs, CAST(0 AS BIGINT), (a, x) -> a + x)": "BIGINT",
    "reduce(xs, 0, (a, x) -> a + x, a -> a * 1.5)": "DECIMAL(13, 1)",
    "zip_with(xs, ys, (x, y) -> x + y)": "ARRAY<BIGINT>",
    "zip_with(ss, ys, (x, y) -> struct(x AS name, y AS n))": "ARRAY<STRUCT<name: STRING, n: BIGINT>>",
    "map_zip_with(m, m, (k, a, b) -> coalesce(a, b))": "MAP<STRING, INT>",
    "str_to_map(s, ',', ':')": "MAP<STRING, STRING>",
    "regexp_extract_all(s, '(a)', 1)": "ARRAY<STRING>",
    "map_contains_key(m, 'a')": "BOOLEAN",
    "array_size(xs)": "INT",
    "json_object_keys(s)": "ARRAY<STRING>",
    "get_json_object(s, '$.a')": "STRING",
    "to_json(st)": "STRING",
    "sentences(s)": "ARRAY<ARRAY<STRING>>",
    "json_array_length(s)": "INT",
    "nvl(xs, ys)": "ARRAY<BIGINT>",
    "coalesce(xs, array())": "ARRAY<INT>",
    "if(i > 1, xs, ys)": "ARRAY<BIGINT>",
    "CASE WHEN i > 1 THEN m ELSE map() END": "MAP<STRING, INT>",
    "arrays_zip(coalesce(xs), coalesce(ss))": "ARRAY<STRUCT<`0`: INT, `1`: STRING>>",
    "transform(arrays_zip(coalesce(xs), coalesce(ss)), z -> struct(z.`0` AS x, z.`1` AS s))": (
        "ARRAY<STRUCT<x: INT, s: STRING>>"
    ),
    "transform(xss, each -> transform(each, x -> x + size(each)))": "ARRAY<ARRAY<INT>>",
}
#: Expressions whose types are told by no one here.
UNCERTAIN = (
    "array()",
    "array(NULL)",
    "map()",
    "array(1, 'a')",
    "array(xs, ss)",
    "concat(xs, ss)",
    "flatten(xs)",
    "transform(xs, x -> xxhash64(x))",
    "transform(xs, x -> y)",
    "map('a', xxhash64(i))",
    "named_struct('a', xxhash64(i))",
    "array(named_struct('a', 1), named_struct('b', 1))",
    "array(xs, m)",
    "map_keys(xs)",
    "map_entries(xs)",
    "map_from_entries(xs)",
    "slice(s, 1, 2)",
    "sequence(s, s)",
    "from_json(s, s)",
    "from_json(s, 'a NUMBERS')",
    "from_json(s, schema_of_json('{}'))",
    "arrays_zip(xs, ss)",
)


def _type(sql: str) -> str | None:
    columns = {
        name: InputColumn(name, 0, name, exp.DataType.build(kind, dialect="spark")) for name, kind in COLUMNS.items()
    }
    found = certain_type(parse_one(sql, dialect="spark"), columns)
    return found.sql(dialect="spark") if found is not None else None


@pytest.mark.parametrize(("sql", "kind"), TYPES.items())
def test_type(sql: str, kind: str) -> None:
    assert _type(sql) == kind


@pytest.mark.parametrize("sql", UNCERTAIN)
def test_uncertain(sql: str) -> None:
    assert _type(sql) is None
