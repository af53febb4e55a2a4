"""Texts that fuzzing has found: each was a traceback, a hang, or another statement than was written."""

from __future__ import annotations

import pytest

from tests.fuzzing.catalog import open_table, streams
from watersmeet.bind.define import define_stream
from watersmeet.bind.planning import plan_query
from watersmeet.errors import WatersmeetError
from watersmeet.plan.explain import explain
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, Select

JOIN = "FROM orders a JOIN payments b ON a.id = b.id WITHIN INTERVAL '1' HOUR"


def plan(sql: str) -> str:
    (statement,) = parse(sql)
    assert isinstance(statement, Select)
    return explain(plan_query(statement.query, streams(), open_table))


def carry_out(sql: str) -> None:
    (statement,) = parse(sql)
    if isinstance(statement, CreateStream):
        define_stream(statement)
    else:
        plan(sql)


def refusal(sql: str) -> str:
    with pytest.raises(WatersmeetError) as raised:
        carry_out(sql)
    assert raised.value.position is not None
    return raised.value.message


def test_a_comment_may_stand_anywhere() -> None:
    """Also within GROUP BY, which is one token; and no comment gets into what is planned."""
    bare = "SELECT a.id AS x, count() AS n FROM orders a WHERE a.cust <> '--/*' GROUP BY a.id"
    commented = (
        "SELECT a.id /* 'x */ AS x, count(/**/) AS n FROM orders a -- it's\n"
        "WHERE a.cust <> '--/*' GROUP /* /* */ */ BY a.id--"
    )
    assert plan(commented) == plan(bare)
    assert refusal("SELECT a.id /* why? */ + 'x' /* because */ FROM orders /* … */ a GROUP BY a.v") == (
        "a.id is neither grouped nor aggregated: a group may have several values"
    )


def test_parentheses_that_change_nothing_do_not_make_another_group() -> None:
    assert "columns: x, count" in plan(
        "SELECT CASE WHEN a.v = ((1)) THEN a.n ELSE 0 END AS x, count() FROM orders a "
        "GROUP BY CASE WHEN (a.v = 1) THEN (a.n) ELSE 0 END"
    )
    assert "neither grouped" in refusal("SELECT a.v - (a.n - 1) AS x, count() FROM orders a GROUP BY (a.v - a.n) - 1")
    case = "CASE WHEN {} THEN a.n ELSE a.id END"
    having = f"SELECT {case} AS x, count() FROM orders a GROUP BY x HAVING max({case}) > 1"
    assert plan(having.format("a.n > a.v", "(a.n > a.v)")).count("CAST(CASE") == 1
    twice = "SELECT count() FROM orders a GROUP BY CASE WHEN a.v = 1 THEN 2 END, CASE WHEN (a.v = 1) THEN ((2)) END"
    assert plan(twice) == plan("SELECT count() FROM orders a GROUP BY CASE WHEN a.v = 1 THEN 2 END")


@pytest.mark.parametrize("sets", ["ROLLUP(a.v > 1)", "CUBE(a.v > 1)", "GROUPING SETS((a.v > 1), ())"])
def test_a_key_of_a_grouping_may_be_a_condition(sets: str) -> None:
    assert "GROUP BY a.v > 1," in plan(f"SELECT a.v > 1 AS x, count() FROM orders a GROUP BY {sets}")


def test_an_argument_that_spark_does_not_know_is_refused() -> None:
    """It was left out of what Spark was asked to compute."""
    assert refusal("SELECT a.id, coalesce(size(b.tags, 2), 0) " + JOIN).startswith(
        "a function is not supported with these arguments: "
    )


@pytest.mark.parametrize("kind", ["DECIMAL(39, 2)", "DECIMAL(0)", "DECIMAL(5, 6)"])
def test_a_decimal_that_spark_does_not_know(kind: str) -> None:
    assert refusal(f"CREATE STREAM s (id {kind}, ts TIMESTAMP)").endswith("is no type of Spark")


@pytest.mark.parametrize("size", ["0x7f", "a", "1.5", "10 CHAR"])
def test_the_size_of_a_type_is_a_whole_number(size: str) -> None:
    assert "expected a whole number after the '(' of a type" in refusal(f"CREATE STREAM s (id DECIMAL({size}, 2))")
    assert "expected a whole number" in refusal(f"SELECT CAST(a.v AS DECIMAL({size}, 2)) AS x {JOIN}")


@pytest.mark.parametrize("delay", ["2.5", "1e400", "1L"])
def test_a_delay_that_is_no_whole_number(delay: str) -> None:
    sql = f"CREATE STREAM s (sn BIGINT, WATERMARK FOR sn AS sn - {delay}) WITH (event_time_unit = 'row')"
    with pytest.raises(WatersmeetError):
        carry_out(sql)


def test_a_setting_is_a_whole_number_or_a_float() -> None:
    assert refusal("SELECT a.id FROM orders a SETTINGS buckets = 1e") == (
        "found '1e', expected a string, a number, TRUE or FALSE after buckets ="
    )


@pytest.mark.timeout(30)
def test_long_concatenations_are_planned() -> None:
    """Each level asked twice for the type of the one below."""
    assert "max(" in plan("SELECT max(a.cust " + "".join(f" || 'x{n}'" for n in range(60)) + ") AS m FROM orders a")


@pytest.mark.timeout(30)
def test_sets_of_groups_are_counted_before_they_are_made() -> None:
    keys = ", ".join(f"a.id + {n}" for n in range(60))
    assert refusal(f"SELECT count() FROM orders a GROUP BY CUBE({keys})").startswith("GROUP BY has 1,152,921,504,606")


@pytest.mark.parametrize("kind", ["ARRAY < >", "MAP<INT>", "STRUCT<a: INT, b: ARRAY < > >", "STRUCT"])
def test_a_type_that_does_not_say_what_it_holds(kind: str) -> None:
    assert "does not say which types it holds" in refusal(f"CREATE STREAM s (id {kind}, ts TIMESTAMP)")


def test_types_within_types_have_a_limit() -> None:
    for levels, is_taken in ((32, True), (33, False), (150, False)):
        sql = f"CREATE STREAM s (id {'ARRAY<' * levels}INT{'>' * levels}, ts TIMESTAMP)"
        if is_taken:
            carry_out(sql)
        else:
            assert refusal(sql) == "a type has more than 32 types within each other"


def test_qualify_needs_a_window_function() -> None:
    assert refusal("SELECT a.id FROM orders a QUALIFY a.id > 1") == (
        "QUALIFY tests window functions, and there is none"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS x, NOT EXISTS (SELECT 1 FROM orders b) GROUP BY CUBE (1, 2)",
        "SELECT concat('' => a.cust) AS x FROM orders a",
        "SELECT 2.5BD x AS x FROM orders a",
        "SELECT OR . 2.5BD ts AS x FROM orders a",
    ],
)
def test_texts_that_are_refused_in_words(sql: str) -> None:
    with pytest.raises(WatersmeetError):
        carry_out(sql)


def test_an_error_at_the_end_of_a_text_is_in_the_text() -> None:
    sql = "SELECT CASE \u202er'\\' WHEN 0 >= a.n THEN 1 END AS x FROM orders a WHERE a.cust = '2026'"
    with pytest.raises(WatersmeetError) as raised:
        carry_out(sql)
    assert raised.value.position is not None
    assert raised.value.position.col <= len(sql) + 1


@pytest.mark.parametrize("sql", ["SELECT {} AS x FROM orders a", "SELECT a.id FROM orders a SETTINGS buckets = {}"])
def test_a_number_that_is_too_long(sql: str) -> None:
    assert refusal(sql.format("9" * 5_000)) == "a number has 5,000 digits"


@pytest.mark.parametrize(
    "join", ["JOIN payments b ON TRUE WITHIN INTERVAL '1' DAY", "JOIN tiers FOR SYSTEM_TIME AS OF PROCTIME() b ON TRUE"]
)
def test_a_query_in_the_place_of_a_stream_is_named(join: str) -> None:
    assert "is not supported in FROM" in refusal(f"SELECT 1 FROM FROM orders a {join}")


def test_an_order_by_an_expression_over_an_external_table_is_refused() -> None:
    """No source computes it; an assertion failed."""
    looked_up = (
        f"SELECT a.id {JOIN} LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() c ON c.id = a.id ORDER BY a.ts"
    )
    assert "c.cust" in plan(f"{looked_up}, c.cust")
    assert refusal(f"{looked_up}, upper(c.cust)").startswith("ORDER BY takes columns, and expressions over one stream")


def test_long_conditions_are_planned() -> None:
    assert (
        plan(f"SELECT a.id {JOIN} WHERE {' AND '.join(f'a.v <> {n}' for n in range(2_000))}").count("a.v <>") == 2_000
    )
    alternatives = " OR ".join(f"b.v = a.v AND a.n = {n}" for n in range(100))
    assert plan(f"SELECT a.id {JOIN} WHERE {alternatives}").count("a.n = ") == 200  # in the condition, and carried


@pytest.mark.parametrize("sign", ["+", "||", "- -"])
def test_long_chains_are_refused(sign: str) -> None:
    chain = f" {sign} ".join(["a.v"] * 400)
    assert "nested more than 150 levels" in refusal(f"SELECT {chain} AS x {JOIN}")
    with pytest.raises(WatersmeetError, match="nested more than 150 levels"):
        parse(f"INSERT INTO s VALUES ({chain.replace('a.v', '1')})")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("date_trunc('HOUR', a.ts, 3)", "date_trunc does not take 3 arguments"),
        ("1 + date_format(coalesce(a.ts, a.ts), 'yyyy', length('x'))", "date_format does not take 3 arguments"),
        ("array_append(array(1), 2, 3)", "array_append does not take 3 arguments"),
    ],
)
def test_arguments_that_a_function_does_not_take_are_not_dropped(call: str, said: str) -> None:
    assert refusal(f"SELECT {call} AS x FROM orders a") == said


@pytest.mark.parametrize(
    "call", ["trunc(a.ts, 'MM')", "first(a.v, true)", "date_trunc('yy', a.ts)", "map('a', 1, 'b', 2)"]
)
def test_arguments_that_have_another_form_in_a_call_are_taken(call: str) -> None:
    (statement,) = parse(f"SELECT {call} AS x FROM orders a")
    assert isinstance(statement, Select)
