"""Which time dates the rows of an input: the event time, or the first column of the declared order."""

from __future__ import annotations

import pytest

from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.plan.explain import explain
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.testing.harness import Harness, load_script

STREAMS = """
CREATE STREAM a (k INT, sn INT, ts TIMESTAMP, other INT, WATERMARK FOR ts AS ts) WITH (ordered_by = 'sn, other DESC');
CREATE STREAM b (k INT, sn INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (ordered_by = 'sn');
CREATE STREAM c (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM d (k INT, sn INT, WATERMARK FOR sn AS sn) WITH (event_time_unit = 'row');
CREATE STREAM e (k INT, at TIMESTAMP, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (ordered_by = 'at');
CREATE TABLE t (id INT, x INT) WITH (connector = 'files', path = 't', format = 'parquet');
CREATE STREAM v (k INT, x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts, PRIMARY KEY (k)) SETTINGS mode = 'versioned_kv';
"""
AB = "SELECT a.k FROM a JOIN b ON a.k = b.k"
NEAR = "b.sn BETWEEN a.sn - 3 AND a.sn + 3"


def plan_of(query: str) -> PhysicalPlan:
    return Harness(*load_script(STREAMS + query + ";")).plan


@pytest.mark.parametrize(
    ("query", "times"),
    [
        (f"{AB} AND {NEAR}", "sn sn"),
        (f"{AB} WHERE {NEAR}", "sn sn"),
        (f"{AB} AND a.sn = b.sn", "sn sn"),
        (f"{AB} AND 2 * a.sn < 3 * b.sn", "sn sn"),
        (f"{AB} AND b.sn <= a.other", "ts ts"),  # only b would be dated by it
        (f"{AB} AND a.sn IS NOT DISTINCT FROM b.sn", "ts ts"),  # NULL has no time
        (f"{AB} AND a.sn % 10 = b.sn % 10", "ts ts"),  # no window
        (f"{AB} AND CAST(a.sn AS STRING) = CAST(b.sn AS STRING)", "ts ts"),
        (f"{AB} AND a.other < b.sn", "ts ts"),  # says nothing of rows to come
        (f"{AB} AND ({NEAR} OR a.k = 1)", "ts ts"),
        (f"{AB} AND {NEAR} LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON t.id = a.k", "sn sn"),
        ("SELECT a.k FROM a LEFT JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON t.id = a.k ORDER BY a.sn", "sn"),
        (f"{AB} AND b.sn <= a.other AND a.sn < b.sn", "sn sn"),
        (f"{AB} AND a.sn + b.k > b.sn AND b.k < 5", "sn sn"),  # both together: b.sn - a.sn < 4
        (f"{AB} AND a.sn + b.k > b.sn WHERE b.k < 5", "sn sn"),
        (f"{AB} AND a.sn + b.k > b.sn", "ts ts"),
        (f"{AB} AND a.sn + b.k > b.sn AND b.k < 5 AND a.ts < b.ts", "ts ts"),
        (f"{AB} AND a.sn + b.k > b.sn JOIN c ON c.k = b.k AND c.k < 5", "ts ts ts"),  # of two joins
        (AB, "ts ts"),
        (f"{AB} AND {NEAR} WITHIN INTERVAL '1' SECOND", "ts ts"),
        (f"{AB} AND {NEAR} AND a.ts < b.ts", "ts ts"),
        (f"{AB} AND a.sn < 5", "ts ts"),
        (f"SELECT a.k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND {NEAR})", "sn sn"),
        (f"{AB} AND {NEAR} JOIN c ON c.k = a.k", "ts ts ts"),  # c has no sequence number to compare
        (f"{AB} AND {NEAR} JOIN c ON c.k = a.k AND c.ts = a.ts", "ts ts ts"),
        (f"{AB} AND {NEAR} JOIN d ON d.k = a.k AND d.sn > b.sn - 5", "sn sn sn"),
        ("SELECT a.k FROM a JOIN d ON a.k = d.k AND a.sn < d.sn", "sn sn"),
        ("SELECT a.k FROM a JOIN e ON a.k = e.k AND a.ts < e.at", "ts at"),
        ("SELECT e.k FROM e JOIN c ON e.k = c.k AND c.ts BETWEEN e.at AND e.at + INTERVAL '1' HOUR", "at ts"),
        ("SELECT a.k FROM a ORDER BY sn, other + k", "sn"),
        ("SELECT a.k FROM a ORDER BY ts, sn", "ts"),
        (f"{AB} AND {NEAR} ORDER BY b.sn", "sn sn"),
        ("SELECT a.k FROM a JOIN v FOR SYSTEM_TIME AS OF a.ts ON a.k = v.k AND v.x < a.sn", "ts ts"),
        ("SELECT a.k FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k AND b.sn <= a.sn", "ts ts"),
        (f"SELECT first_value(a.k) FROM a JOIN b ON {NEAR} GROUP BY b.k", "ts ts"),
        (f"SELECT count(*) FROM a JOIN b ON {NEAR} GROUP BY b.k", "sn sn"),
    ],
)
def test_the_declared_order_dates_rows_where_conditions_are_over_it_alone(query: str, times: str) -> None:
    query += "" if " ORDER BY " in query else " EMIT CHANGELOG"
    assert " ".join(part.input.time.column for part in plan_of(query).inputs) == times


def test_an_order_of_timestamps_is_a_time() -> None:
    (left, _) = plan_of("SELECT e.k FROM e JOIN e f ON e.k = f.k AND f.at >= e.at - INTERVAL '5' SECONDS").inputs
    assert (left.input.time.column, left.input.time.unit, left.input.time.delay) == ("at", TimeUnit.TIMESTAMP, 0)


@pytest.mark.parametrize(
    ("query", "time"),
    [
        (f"{AB} WITHIN INTERVAL '1' SECOND ORDER BY b.sn", "b.ts"),
        (f"{AB} AND {NEAR} JOIN c ON c.k = a.k AND c.ts BETWEEN a.ts AND a.ts ORDER BY a.sn", "a.ts"),
    ],
)
def test_rows_are_not_in_two_orders(query: str, time: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        plan_of(query)
    alias = time[0]
    assert raised.value.message == (
        f"ORDER BY {alias}.sn: other parts of the query need the event time of {alias}, ts, "
        "and an operator has one kind of time"
    )
    assert raised.value.hint == f"order by {time}, or write the windows over sn"
    assert raised.value.position is not None


def test_a_stream_without_a_window_over_a_sequence_number_cannot_be_ordered_with_one_that_has() -> None:
    with pytest.raises(UnsupportedError) as raised:
        plan_of(f"{AB} ORDER BY a.sn")
    assert raised.value.message == (
        "ORDER BY a.sn: not all streams of the query have such a time: there are sequence numbers and instants, and an "
        "operator has one kind of time"
    )
    assert raised.value.hint == "write windows over a.sn and orders of the other streams"


def test_a_length_of_time_is_no_window_over_sequence_numbers() -> None:
    with pytest.raises(BindError) as raised:
        plan_of(f"{AB} AND b.sn BETWEEN a.sn AND a.sn + INTERVAL '5' SECONDS")
    assert raised.value.message == "INTERVAL is a length of time, but a.sn counts rows"
    assert (raised.value.hint, str(raised.value.position)) == ("write a number: … + 5", "line 9, column 72")


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "MAP<INT, INT>", "STRUCT<p: INT>"])
def test_what_has_no_order_breaks_no_ties(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=r"ORDER BY x.v: values of type .* are in no order"):
        plan_of(f"CREATE STREAM x (v {kind}, ts TIMESTAMP); SELECT ts FROM x ORDER BY ts, v")


SETS = "a.sn + b.k > b.sn AND b.k < 5"


@pytest.mark.parametrize(
    ("query", "settings"),
    [
        (f"{AB} AND {SETS} GRACE PERIOD INTERVAL '5' SECONDS", ""),
        (f"{AB} AND {SETS}", "allowed_lateness = '5 seconds', join_ttl = '1 hour'"),
        (f"{AB} AND {SETS}", "max_future = '5 seconds'"),
    ],
)
def test_a_window_that_several_conditions_set_dates_no_rows_where_durations_are_asked_for(
    query: str, settings: str
) -> None:
    plan = plan_of(f"{query} EMIT CHANGELOG" + (f" SETTINGS {settings}" if settings else ""))
    assert [part.input.time.column for part in plan.inputs] == ["ts", "ts"]


def test_a_grace_period_is_no_number_of_rows() -> None:
    with pytest.raises(UnsupportedError) as raised:
        plan_of(f"{AB} AND {NEAR} GRACE PERIOD INTERVAL '5' SECONDS")
    assert raised.value.message == "GRACE PERIOD is a duration, but a is dated by sn here, which counts rows"


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("sn, explode(arr)", "ordered_by takes expressions over one row: EXPLODE(arr) makes rows"),
        ("sn, x * rand()", "ordered_by: RAND() is nondeterministic, so rows would be in another order each time"),
        ("sn, m", "ordered_by: values of type MAP<INT, INT> are in no order"),
        ("sn, s", "ordered_by: values of type STRUCT<p: MAP<INT, INT>> are in no order"),
    ],
)
def test_terms_that_order_nothing_are_refused(terms: str, message: str) -> None:
    columns = "sn INT, x INT, arr ARRAY<INT>, m MAP<INT, INT>, s STRUCT<p: MAP<INT, INT>>"
    with pytest.raises(BindError) as raised:
        load_script(f"CREATE STREAM o ({columns}) WITH (ordered_by = '{terms}'); SELECT sn FROM o;")
    assert raised.value.message == message
    assert str(raised.value.position).startswith("line 1, column ")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sn DIV 10 AS g, count(*) AS n FROM a GROUP BY sn DIV 10 EMIT FINAL",
        "SELECT window_start, count(*) AS n FROM TUMBLE(f, ts, INTERVAL '5' SECONDS) GROUP BY window_start EMIT FINAL",
    ],
)
def test_where_rows_are_late_by_their_window_further_terms_are_not_computed(query: str) -> None:
    plan = plan_of(
        f"CREATE STREAM f (x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (ordered_by = 'ts, x'); {query}"
    )
    assert [part.ties for part in plan.inputs] == [()]
    assert "before the last row there" not in explain(plan)


def test_explain_names_the_order_that_dates_rows() -> None:
    lines = explain(plan_of(f"{AB} AND {NEAR}")).splitlines()
    late = "a row behind its frontier, or at it and before the last row there, is late"
    assert f"  dated by sn, its declared order (sn, other DESC); {late}" in lines
    assert "  results are not in order of a.sn or b.sn: each comes with its later row" in lines
    assert "  window -3 rows <= b.sn - a.sn <= 3 rows" in lines
    assert "  its declared order (sn) dates no rows: no window, ORDER BY or EMIT FINAL is over it alone" in explain(
        plan_of(f"{AB} EMIT CHANGELOG")
    )
    lines = explain(plan_of("SELECT k FROM a ORDER BY sn")).splitlines()
    assert lines[0] == "EMIT FINAL: rows wait for their place in the order"
    assert lines[-2] == "order: rows in order of a.sn, once final; sorted where they do not arrive so; one bucket"
    assert not any(line.startswith("forward") for line in lines)


def test_with_one_bucket_a_sliding_join_orders_all_results() -> None:
    query = f"{AB} AND {NEAR} ORDER BY b.sn, a.k DESC"
    assert [each.name for each in plan_of(query).operators] == ["join_1", "order"]
    (join,) = plan_of(f"{query} SETTINGS buckets = 1").operators
    assert join.name == "join_1"
    assert "  sliding: results in order of b.sn, once all partners are there" in explain(
        plan_of(f"{query} SETTINGS buckets = 1")
    )
